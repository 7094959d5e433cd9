import {
  type EmbedRoute,
  type EmbedRouteName,
  embedPaths,
  embedRoutes,
  pathOf,
} from "../../contract/embed-routes.ts";
import type { Modality } from "../../contract/model-spec.ts";
import { sampleTexts } from "../../target/reference/text-reference.ts";
import {
  type EncodedImage,
  requestOf,
  textRequestOf,
} from "../../target/requests/embed-requests.ts";
import type { HttpClient, HttpResponse } from "../../target/requests/http-client.ts";
import type { TargetService } from "../../target/service/target-service.ts";

const timeoutMs = 30_000;

type SentRequest = Parameters<HttpClient["send"]>;

type PostRouteName = {
  [Name in EmbedRouteName]: (typeof embedRoutes)[Name]["method"] extends "POST" ? Name : never;
}[EmbedRouteName];

/** Image and text for test requests; a modality that the service does not embed has none. */
interface Samples {
  readonly image?: EncodedImage | undefined;
  readonly text?: string | undefined;
}

/** Valid request to each POST route; undefined if the service does not embed what the route accepts. */
const requests: Readonly<
  Record<PostRouteName, (url: string, samples: Samples) => SentRequest | undefined>
> = {
  embed: (url, { image }) => image && requestOf(url, "raw", [image]),
  embedBase64: (url, { image }) => image && requestOf(url, "base64", [image]),
  embedText: (url, { text }) => (text === undefined ? undefined : textRequestOf(url, [text])),
  openAiEmbeddings: (url, { image, text }) =>
    jsonRequest(`${url}${embedPaths.openAiEmbeddings}`, {
      input: image === undefined ? text : { image: Buffer.from(image.bytes).toString("base64") },
    }),
};

function jsonRequest(address: string, body: unknown): SentRequest {
  return [
    address,
    { headers: { "content-type": "application/json" }, body: Buffer.from(JSON.stringify(body)) },
  ];
}

export interface RouteResponse {
  /** Method and path, such as `POST /embed`. */
  readonly name: string;
  readonly route: EmbedRoute;
  readonly response: HttpResponse;
}

/**
 * Sends a valid request to every route of the embed API, except for those of a modality that no model of the service has.
 *
 * @param image - Absent if no model of the environment embeds images.
 */
export async function routeResponses(
  service: TargetService,
  url: string,
  image: EncodedImage | undefined,
): Promise<readonly RouteResponse[]> {
  const { models } = service;
  const embeds = (modality: Modality) =>
    models.some(({ towers }) => towers[modality] !== undefined);
  const samples = {
    image: embeds("image") ? image : undefined,
    text: embeds("text") ? sampleTexts[0] : undefined,
  };
  const responses: RouteResponse[] = [];
  for (const [name, route] of Object.entries(embedRoutes)) {
    const { method } = route;
    const path = pathOf(route, { model: models[0]!.name });
    const sent: SentRequest | undefined =
      method === "POST" ? requests[name as PostRouteName](url, samples) : [`${url}${path}`, {}];
    if (sent === undefined) continue;
    const [address, request] = sent;
    const response = await service.http.send(address, { ...request, method, timeoutMs });
    responses.push({ name: `${method} ${path}`, route, response });
  }
  return responses;
}
