import type { Target } from "../../artefact/simulation-types.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { firstImage, type Reference } from "../../target/reference/reference.ts";
import { type HttpResponse, reason } from "../../target/requests/http-client.ts";
import { servedTowers, type TargetService } from "../../target/service/target-service.ts";
import { type Check, ownKinds } from "./check.ts";
import { resultOf } from "./check-result.ts";
import { routeResponses } from "./route-responses.ts";

const timeoutMs = 10_000;

export const contentTypeCheck: Check = {
  name: "content-type",
  question: "Does every HTTP route declare the media type of its responses?",
  sendsRequests: true,
  kinds: ownKinds,
  runService: (service, { reference }) => checkContentType(service, reference),
};

/** Checks the header `content-type` of every route; one result per HTTP endpoint. */
export async function checkContentType(
  service: TargetService,
  reference: Reference,
): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = [];
  for (const target of service.targets) {
    const { endpoint, url } = target;
    if (url === undefined || endpoint.protocol === "oip-grpc") continue;
    const { outcome, message } = await responsesOf(service, target, url, reference).then(
      findingOf,
      (error: unknown) => ({ outcome: "fail", message: reason(error) }) as const,
    );
    const details = { endpoint: endpoint.name };
    results.push(resultOf(service, "content-type", outcome, message, details));
  }
  return results;
}

interface TypedResponse {
  readonly name: string;
  /** Expected media type. */
  readonly mediaType: string;
  readonly response: HttpResponse;
}

async function responsesOf(
  service: TargetService,
  { endpoint }: Target,
  url: string,
  reference: Reference,
): Promise<readonly TypedResponse[]> {
  if (endpoint.protocol === "embed-http") {
    const responses = await routeResponses(service, url, firstImage(reference));
    return responses.map(({ route, ...rest }) => ({ ...rest, mediaType: route.mediaType }));
  }
  const model = `/v2/models/${servedTowers(service)[0]?.model}`;
  const [paths, mediaType] =
    endpoint.protocol === "metrics"
      ? [[embedPaths.metrics], "text/plain"]
      : [["/v2", model, `${model}/config`, `${model}/stats`], "application/json"];
  return Promise.all(
    paths.map(async (path) => ({
      name: `GET ${path}`,
      mediaType,
      response: await service.http.send(`${url}${path}`, { timeoutMs }),
    })),
  );
}

function findingOf(responses: readonly TypedResponse[]) {
  const problems = responses.flatMap(({ name, mediaType, response }) => {
    if (response.status !== 200) return [`${name} must respond with 200, got ${response.status}`];
    // without parameters, such as a charset
    const found = response.headers["content-type"]?.split(";")[0]?.trim() ?? "none";
    return found === mediaType
      ? []
      : [`content-type of ${name} must be ${mediaType}, got ${found}`];
  });
  if (problems.length > 0) return { outcome: "fail", message: problems.join("; ") } as const;
  const passed = responses.map(({ name, mediaType }) => `${name} ${mediaType}`);
  return { outcome: "pass", message: passed.join(", ") } as const;
}
