# Debian's Redis, started as the official image starts it.
FROM redbatch-engine/debian
RUN apt-get update && apt-get install --yes --no-install-recommends redis-server redis-sentinel \
    && rm -rf /var/lib/apt/lists/* \
    && usermod --uid 999 redis && groupmod --gid 999 redis && mkdir /data && chown redis:redis /data && rm -r /etc/redis
COPY redis-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
VOLUME /data
WORKDIR /data
ENTRYPOINT ["docker-entrypoint.sh"]
EXPOSE 6379
CMD ["redis-server"]
