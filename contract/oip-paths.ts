/** Routes of the Open Inference Protocol over HTTP. */
export const oipPaths = {
  ready: "/v2/health/ready",
  live: "/v2/health/live",
  serverMetadata: "/v2",
} as const;
