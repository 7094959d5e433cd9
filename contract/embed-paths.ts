/** Paths of the embed API. A file of its own: the health check reads it without the schemas. */
export const embedPaths = {
  embed: "/embed",
  embedBase64: "/embed/base64",
  healthz: "/healthz",
  health: "/health",
  readyz: "/readyz",
  metrics: "/metrics",
  openapi: "/openapi.json",
  page: "/",
} as const;
