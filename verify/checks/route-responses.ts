import {
  type EmbedEncoding,
  type EncodedImage,
  requestOf,
} from "../../bench/run/embed-requests.ts";
import type { HttpResponse } from "../../bench/run/http-client.ts";
import type { ServiceUnderTest } from "../../bench/run/service-under-test.ts";
import { type EmbedRoute, type EmbedRouteName, embedRoutes } from "../../contract/embed-routes.ts";

const timeoutMs = 30_000;

type PostRouteName = {
  [Name in EmbedRouteName]: (typeof embedRoutes)[Name]["method"] extends "POST" ? Name : never;
}[EmbedRouteName];

/** Encoding of a valid request to each POST route. */
const encodings: Readonly<Record<PostRouteName, EmbedEncoding>> = {
  embed: "raw",
  embedBase64: "base64",
};

export interface RouteResponse {
  /** Method and path, such as `POST /embed`. */
  readonly name: string;
  readonly route: EmbedRoute;
  readonly response: HttpResponse;
}

/** Sends a valid request to every route of the embed API. */
export async function routeResponses(
  service: ServiceUnderTest,
  url: string,
  image: EncodedImage,
): Promise<readonly RouteResponse[]> {
  const responses: RouteResponse[] = [];
  for (const [name, route] of Object.entries(embedRoutes)) {
    const { method, path } = route;
    const [address, request] =
      method === "POST"
        ? requestOf(url, encodings[name as PostRouteName], [image])
        : [`${url}${path}`, {}];
    const response = await service.http.send(address, { ...request, method, timeoutMs });
    responses.push({ name: `${method} ${path}`, route, response });
  }
  return responses;
}
