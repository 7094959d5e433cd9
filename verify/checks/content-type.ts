import type { CheckResult } from "../../bench/record/record.ts";
import { reason } from "../../bench/run/http-client.ts";
import { resultOf, type ServiceUnderTest } from "../../bench/run/service-under-test.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import type { Check } from "./check.ts";

const timeoutMs = 10_000;

/** Route and expected media type of each HTTP protocol. */
const routes = {
  "embed-http": { route: embedPaths.openapi, mediaType: "application/json" },
  "oip-http": { route: "/v2", mediaType: "application/json" },
  metrics: { route: embedPaths.metrics, mediaType: "text/plain" },
} as const;

export const contentTypeCheck: Check = {
  name: "content-type",
  question: "Does every HTTP endpoint declare the media type of its responses?",
  passes: {
    simulation: "JSON endpoints respond with application/json, metrics with text/plain",
    deployed: "as in the simulation",
  },
  sendsRequests: true,
  runService: (service) => checkContentType(service),
};

/** Checks the header `content-type`; one result per HTTP endpoint. */
export async function checkContentType(service: ServiceUnderTest): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = [];
  for (const { endpoint, url } of service.targets) {
    if (url === undefined || endpoint.protocol === "oip-grpc") continue;
    const { route, mediaType } = routes[endpoint.protocol];
    const { outcome, found } = await mediaTypeOf(service, `${url}${route}`).then(
      (type) => ({ outcome: type === mediaType ? "pass" : "fail", found: type }) as const,
      (error: unknown) => ({ outcome: "fail", found: reason(error) }) as const,
    );
    const message = `content-type of GET ${route} must be ${mediaType}, got ${found}`;
    const details = { endpoint: endpoint.name };
    results.push(resultOf(service, "content-type", outcome, message, details));
  }
  return results;
}

/** Media type without parameters, such as `application/json`. */
async function mediaTypeOf(service: ServiceUnderTest, url: string): Promise<string> {
  const { headers } = await service.http.send(url, { timeoutMs });
  return (
    String(headers["content-type"] ?? "none")
      .split(";")[0]
      ?.trim() ?? "none"
  );
}
