# Read before each block of a document. The functions do what a reader does by hand: fill in the id of a job or a key, run
# a server in another terminal, end a command with Ctrl-C. A failed request fails its command.
#
# Set from outside: STATE, a folder for the blocks of one document; PORT and CLUSTER_REDIS of the running cluster;
# SERVER_PORT and ADMIN_PORT of a server that the block starts.
set -euo pipefail
shopt -s nullglob
mkdir -p "$STATE/jobs" "$STATE/temporary"
servers=()
trap 'for pid in "${servers[@]}"; do kill "$pid" && wait "$pid" || true; done' EXIT

# fill ARGUMENT...: puts the arguments into FILLED, with the ids of real jobs and of a real API key.
fill() {
    local file id
    FILLED=("$@")
    for file in "$STATE"/jobs/*; do
        id=${file##*/}.5f1d…
        FILLED=("${FILLED[@]//"$id"/"$(cat "$file")"}")
    done
    if [ -e "$STATE/api-key" ]; then FILLED=("${FILLED[@]//1f0c9d2ab37e4c55/"$(cat "$STATE/api-key")"}"); fi
}

# The environment is active already; its folder is not in that of the blocks.
source() {
    [ "$1" = .venv/bin/activate ] || builtin source "$@"
}

curl() {
    local id
    fill "$@"
    command curl --fail-with-body "${FILLED[@]}" | tee "$STATE/answer"
    echo
    for id in $(grep -aoE '"id": ?"[^".]+\.[^".]+"' "$STATE/answer" | cut -d'"' -f4); do
        echo "$id" >"$STATE/jobs/${id%.*}"
    done
}

redbatch() {
    fill "$@"
    set -- "${FILLED[@]}"
    case "$*" in
    'up'* | 'gateway '* | 'worker '*) serve "$@" ;;
    *' --watch'*) until_ctrl_c redbatch "$@" ;;
    'tune '*) until_ctrl_c redbatch "$@" --beside-up ;;  # a reader stops the cluster before
    'embed '*) rm -f vectors.npy  # of an earlier block, which a reader would move away
        command redbatch "$@" ;;
    'jobs cancel '*) command redbatch "$@" 2>&1 | tee "$STATE/answer" || grep 'already ended' "$STATE/answer" ;;
    'keys create'*)
        command redbatch "$@"
        command redbatch keys list --json | tail -n 1 | sed 's/.*"id": *"\([^"]*\)".*/\1/' >"$STATE/api-key" ;;
    *) command redbatch "$@" ;;
    esac
}

# Starts a server in the background and waits until it is ready. A gateway or worker uses the Redis of the cluster.
serve() {
    local log=$STATE/$1.log
    : >"$log"  # an earlier block's says that it is ready
    if [ "$1" = up ]; then
        TMPDIR=$STATE/temporary REDBATCH_PORT=$SERVER_PORT command redbatch "$@" >"$log" 2>&1 &
    else
        REDBATCH_REDIS_URL=$CLUSTER_REDIS REDBATCH_PORT=$SERVER_PORT REDBATCH_ADMIN_PORT=$ADMIN_PORT \
            command redbatch "$@" >"$log" 2>&1 &
    fi
    servers+=($!)
    until grep -q '^ *stop  ' "$log" || command curl -sf -o "$STATE/answer" "http://127.0.0.1:$ADMIN_PORT/readyz"; do
        kill -0 $! || { cat "$log"; return 1; }
        sleep 0.1
    done
    if [ "$1" = worker ]; then  # the gateway finds new queues once a second, which a reader does not notice
        local queue
        queue=$(sed -n 's/.*"worker starts".*"queue":"\([^"]*\)".*/\1/p' "$log")
        until command curl -sf -o "$STATE/answer" "http://127.0.0.1:$PORT/v1/models/$queue"; do sleep 0.1; done
    fi
}

until_ctrl_c() {
    local code=0
    # What runs in the background, as the suite may, has SIGINT ignored, and so has all that it starts.
    timeout --signal=INT 3 env --default-signal=INT "$@" || code=$?
    [ "$code" = 124 ]
}

python() {
    case "$*" in
    *consume_results.py*)
        until_ctrl_c python "$@" ;;
    *) command python "$@" ;;
    esac
}

redis-cli() {
    case "$1" in
    -u | -s) command redis-cli "$@" ;;
    *) command redis-cli -s "${CLUSTER_REDIS#unix://}" "$@" ;;
    esac | tee "$STATE/answer"
    ! grep -E '^(\(error\)|ERR|WRONGTYPE|NOGROUP) ?' "$STATE/answer"
}
