# For tests of reviews: provides the command `tritonserver`, runs clipstack's server, and always computes on the CPU.
ARG EMBED_IMAGE
FROM ${EMBED_IMAGE}
USER 0:0
RUN printf '%s\n' '#!/bin/sh' 'exec node /app/dist/main.js tritonserver "$@"' > /usr/local/bin/tritonserver \
    && printf '%s\n' '#!/bin/sh' 'for url; do :; done' 'exec node /app/dist/healthcheck.js "$url"' > /usr/local/bin/curl \
    && printf '%s\n' '#!/bin/sh' 'case "$1" in tritonserver|python3) exec "$@";; esac' \
      '[ -z "$EXECUTION_PROVIDER" ] || export EXECUTION_PROVIDER=cpu' \
      'for word; do shift; [ "$word" = cuda ] && word=cpu; set -- "$@" "$word"; done' \
      'exec node /app/dist/main.js "$@"' > /usr/local/bin/on-cpu \
    && printf '%s\n' '#!/bin/sh' '# the emulator reads the key itself: without the launcher' 'shift 2' 'exec "$@"' > /usr/local/bin/python3 \
    && chmod +x /usr/local/bin/python3 /usr/local/bin/tritonserver /usr/local/bin/curl /usr/local/bin/on-cpu
USER 1000:1000
ENTRYPOINT ["/usr/local/bin/on-cpu"]
