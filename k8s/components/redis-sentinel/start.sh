#!/bin/sh
# start.sh redis|sentinel [OPTION]...: starts one of the two containers of a pod.
#
# The master is the one that a sentinel names. If none answers, as when all pods start, it is the one that the sentinel of
# this pod knew last, and in the beginning that of the first pod.
set -eu
domain="redis-pods.$POD_NAMESPACE.svc"
self="redis-${HOSTNAME##*-}.$domain"
state=/data/sentinel/sentinel.conf

find_master() {
    for number in 0 1 2; do
        found=$(timeout 3 redis-cli -h "redis-$number.$domain" -p 26379 SENTINEL GET-MASTER-ADDR-BY-NAME redbatch \
            2>/dev/null | head -n 1) || true
        case $found in
            *".$domain") echo "$found" && return ;;
        esac
    done
    found=$(sed -n 's/^sentinel monitor redbatch \([^ ]*\) .*/\1/p' "$state" 2>/dev/null) || true
    echo "${found:-redis-0.$domain}"
}

role=$1
shift
umask 077
case $role in
    redis)
        master=$(find_master)
        {
            cat /etc/redis/redis.conf
            printf 'replica-announce-ip %s\nmasteruser replica\nmasterauth %s\n' \
                "$self" "$(cat /run/secrets/redis-peers/replica)"
            [ "$master" = "$self" ] || echo "replicaof $master 6379"
        } >/tmp/redis.conf
        exec redis-server /tmp/redis.conf "$@"
        ;;
    sentinel)
        mkdir -p "${state%/*}"
        # The file keeps what the sentinel learns, such as the master and the epoch; only the password is always new.
        [ -s "$state" ] || cat >"$state" <<END
port 26379
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip $self
sentinel monitor redbatch $(find_master) 6379 2
sentinel down-after-milliseconds redbatch 2000
sentinel failover-timeout redbatch 10000
sentinel auth-user redbatch sentinel
END
        sed -i '/^sentinel auth-pass /d' "$state"
        echo "sentinel auth-pass redbatch $(cat /run/secrets/redis-peers/sentinel)" >>"$state"
        exec redis-server "$state" --sentinel
        ;;
esac
