# A real tritonserver in a container, for tests, where NVIDIA's image cannot be pulled. It is the one of PyPI's
# `nvidia-pytriton`, which has the Python backend and nothing else. The backend `onnxruntime` is written in Python here
# (a "Python-based backend"), so that a configuration for ONNX Runtime is served as it is.
ARG DEBIAN_IMAGE=debian:bookworm
FROM ${DEBIAN_IMAGE}
ARG PACKAGES
# what the base image trusts is kept: a mirror of a registry may have a certificate of its own, and Debian's package writes
# the bundle anew
ENV PIP_CERT=/etc/ssl/bundle.pem
RUN [ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp /etc/ssl/certs/ca-certificates.crt /etc/ssl/bundle.pem; \
    apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends curl libpython3.11 python3-pip >/dev/null \
    && { [ -e /etc/ssl/bundle.pem ] || cp /etc/ssl/certs/ca-certificates.crt /etc/ssl/bundle.pem; } \
    && python3 -m pip install --quiet --no-cache-dir --no-compile --break-system-packages ${PACKAGES} \
    && rm -rf /var/lib/apt/lists/*
RUN set -e; packages=/usr/local/lib/python3.11/dist-packages; triton=$packages/pytriton/tritonserver; \
    mkdir -p /opt/backends/python /opt/backends/onnxruntime; \
    cp $triton/backends/python/libtriton_python.so $triton/python_backend_stubs/3.11/triton_python_backend_stub \
       $triton/backends/python/triton_python_backend_utils.py /opt/backends/python/; \
    printf '%s\n' '#!/bin/sh' "export LD_LIBRARY_PATH=$packages/nvidia_pytriton.libs" \
      '# an option that this release has not yet' \
      'for word; do shift; case $word in --http-max-input-size=*) ;; *) set -- "$@" "$word" ;; esac; done' \
      "exec $triton/bin/tritonserver --backend-directory=/opt/backends --allow-gpu-metrics=false \"\$@\"" \
      > /usr/local/bin/tritonserver; \
    chmod +x /usr/local/bin/tritonserver
COPY test-onnx-backend.py /opt/backends/onnxruntime/model.py
USER 1000:1000
