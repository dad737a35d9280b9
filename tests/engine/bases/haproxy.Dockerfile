# A load balancer in front of the gateways.
FROM redbatch-engine/debian
RUN apt-get update && apt-get install --yes --no-install-recommends haproxy && rm -rf /var/lib/apt/lists/*
ENTRYPOINT ["haproxy", "-db", "-f"]
