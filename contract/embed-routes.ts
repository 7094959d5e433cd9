/** Routes of the embed API, in a separate file so that the health check does not load the schemas. */

export interface EmbedRoute {
  readonly method: "GET" | "POST";
  readonly path: string;
  /** Media type of a response with status 200, without parameters and unless `Accept` selects another. */
  readonly mediaType: "application/json" | "text/html" | "text/plain";
  /** Whether a server with an API key requires it on this route. */
  readonly requiresKey: boolean;
}

const json = { mediaType: "application/json", requiresKey: false } as const;

export const embedRoutes = {
  embed: { ...json, method: "POST", path: "/embed", requiresKey: true },
  embedBase64: { ...json, method: "POST", path: "/embed/base64", requiresKey: true },
  healthz: { ...json, method: "GET", path: "/healthz" },
  health: { ...json, method: "GET", path: "/health" },
  readyz: { ...json, method: "GET", path: "/readyz" },
  metrics: { method: "GET", path: "/metrics", mediaType: "text/plain", requiresKey: true },
  openapi: { ...json, method: "GET", path: "/openapi.json" },
  page: { method: "GET", path: "/", mediaType: "text/html", requiresKey: false },
} as const satisfies Readonly<Record<string, EmbedRoute>>;
export type EmbedRouteName = keyof typeof embedRoutes;

/** Path of each route. */
export const embedPaths = Object.fromEntries(
  Object.entries(embedRoutes).map(([name, { path }]) => [name, path]),
) as { readonly [Name in EmbedRouteName]: (typeof embedRoutes)[Name]["path"] };

/** Headers of every response of the embed API, errors included. */
export const embedResponseHeaders = {
  /** Browsers must not treat the body as another media type. */
  "x-content-type-options": "nosniff",
} as const;
