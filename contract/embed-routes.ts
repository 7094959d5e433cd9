/** Routes of the embed API, in a separate file so that the health check does not load the schemas. */
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
