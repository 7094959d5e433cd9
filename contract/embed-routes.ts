/** Routes of the embed API, in a separate file so that the health check does not load the schemas. */

export interface EmbedRoute {
  readonly method: "GET" | "POST";
  /** A segment that starts with a colon is a parameter. */
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
  embedText: { ...json, method: "POST", path: "/embed/text", requiresKey: true },
  openAiEmbeddings: { ...json, method: "POST", path: "/v1/embeddings", requiresKey: true },
  openAiModels: { ...json, method: "GET", path: "/v1/models", requiresKey: true },
  openAiModel: { ...json, method: "GET", path: "/v1/models/:model", requiresKey: true },
  healthz: { ...json, method: "GET", path: "/healthz" },
  health: { ...json, method: "GET", path: "/health" },
  readyz: { ...json, method: "GET", path: "/readyz" },
  metrics: { method: "GET", path: "/metrics", mediaType: "text/plain", requiresKey: true },
  openapi: { ...json, method: "GET", path: "/openapi.json" },
  page: { method: "GET", path: "/", mediaType: "text/html", requiresKey: false },
} as const satisfies Readonly<Record<string, EmbedRoute>>;
export type EmbedRouteName = keyof typeof embedRoutes;

export const embedPaths = Object.fromEntries(
  Object.entries(embedRoutes).map(([name, { path }]) => [name, path]),
) as { readonly [Name in EmbedRouteName]: (typeof embedRoutes)[Name]["path"] };

/** Path of a route with the values of its parameters. */
export function pathOf(
  { path }: Pick<EmbedRoute, "path">,
  values: Readonly<Record<string, string>>,
): string {
  return path.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(values[name] ?? ""));
}

export function methodsOf(path: string): readonly EmbedRoute["method"][] {
  return Object.values(embedRoutes)
    .filter((route) => new RegExp(`^${route.path.replace(/:\w+/g, "[^/]+")}$`).test(path))
    .map(({ method }) => method);
}

/** Headers of every response of the embed API, errors included. */
export const embedResponseHeaders = {
  /** Browsers must not treat the body as another media type. */
  "x-content-type-options": "nosniff",
} as const;
