# For tests: an embed image whose server says why it cannot start, and ends.
ARG NODE_IMAGE=node:24.21.0-bookworm-slim
FROM ${NODE_IMAGE}
USER 1000:1000
ENTRYPOINT ["sh", "-c", "echo 'the weights are damaged' >&2; exit 3"]
CMD []
