# For tests of how containers ask for GPUs: has NVIDIA's `tritonserver` by name, and runs clipstack's server.
ARG EMBED_IMAGE
FROM ${EMBED_IMAGE}
USER 0:0
RUN printf '%s\n' '#!/bin/sh' 'exec node /app/dist/main.js tritonserver "$@"' > /usr/local/bin/tritonserver \
    && printf '%s\n' '#!/bin/sh' 'for url; do :; done' 'exec node /app/dist/healthcheck.js "$url"' > /usr/local/bin/curl \
    && printf '%s\n' '#!/bin/sh' '# the emulator reads the key itself: without the launcher' 'shift 2' 'exec "$@"' > /usr/local/bin/python3 \
    && chmod +x /usr/local/bin/python3 /usr/local/bin/tritonserver /usr/local/bin/curl
USER 1000:1000
ENTRYPOINT []
