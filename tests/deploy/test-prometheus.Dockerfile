# Debian's Prometheus with the user, folders, wget and entry point of prom/prometheus, for tests, where that image cannot be pulled.
ARG DEBIAN_IMAGE=debian:bookworm
FROM ${DEBIAN_IMAGE}
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends prometheus wget >/dev/null \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /prometheus && chown 65534:65534 /prometheus
VOLUME ["/prometheus"]
WORKDIR /prometheus
USER 65534:65534
ENTRYPOINT ["/usr/bin/prometheus"]
