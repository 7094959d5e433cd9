import type { CheckResult } from "../../bench/record/record.ts";
import { embedErrorStatus } from "../../contract/embed-api.ts";
import { embedResponseHeaders, embedRoutes, pathOf } from "../../contract/embed-routes.ts";
import { firstImage, type Reference } from "../../target/reference/reference.ts";
import type { EncodedImage } from "../../target/requests/embed-requests.ts";
import type { HttpResponse } from "../../target/requests/http-client.ts";
import type { TargetService } from "../../target/service/target-service.ts";
import { type Check, ownKinds } from "./check.ts";
import { resultOf } from "./check-result.ts";
import { routeResponses } from "./route-responses.ts";

const timeoutMs = 10_000;

export const securityHeadersCheck: Check = {
  name: "security-headers",
  question: "Does the embed server send its security headers?",
  sendsRequests: true,
  kinds: ownKinds,
  runService: (service, { reference }) => checkSecurityHeaders(service, reference),
};

/** Checks the security headers of the embed API; no result for a service without one. */
export async function checkSecurityHeaders(
  service: TargetService,
  reference: Reference,
): Promise<readonly CheckResult[]> {
  const target = service.targets.find(({ endpoint }) => endpoint.protocol === "embed-http");
  if (target?.url === undefined) return [];
  const findings = [
    ...(await commonHeaders(service, target.url, firstImage(reference))),
    ...(service.apiKey === undefined ? [] : await keyChallenges(service, target.url)),
  ];
  const problems = findings.flatMap(({ problem }) => problem ?? []);
  const outcome = problems.length === 0 ? "pass" : "fail";
  const headers = [...new Set(findings.map(({ header }) => header))].join(", ");
  const message =
    problems.length === 0 ? `${findings.length} headers: ${headers}` : problems.join("; ");
  const details = { endpoint: target.endpoint.name };
  return [resultOf(service, "security-headers", outcome, message, details)];
}

interface Finding {
  readonly header: string;
  readonly problem?: string;
}

/** Compares a header with a pattern; `expected` completes the sentence "must …". */
function findingOf(
  { headers }: HttpResponse,
  header: string,
  route: string,
  pattern: RegExp,
  expected: string,
): Finding {
  const found = String(headers[header] ?? "none");
  if (pattern.test(found)) return { header };
  return { header, problem: `${header} of ${route} must ${expected}, got ${found}` };
}

async function commonHeaders(
  service: TargetService,
  url: string,
  image: EncodedImage | undefined,
): Promise<readonly Finding[]> {
  const unknownPath = "/no-such-path";
  const responses = [
    ...(await routeResponses(service, url, image)),
    {
      name: `GET ${unknownPath}`,
      route: undefined,
      response: await service.http.send(`${url}${unknownPath}`, { timeoutMs }),
    },
  ];
  return responses.flatMap(({ name, route, response }) => [
    ...Object.entries(embedResponseHeaders).map(([header, value]) =>
      findingOf(response, header, name, new RegExp(`^${value}$`), `be ${value}`),
    ),
    ...(route?.mediaType === "text/html"
      ? [
          findingOf(
            response,
            "content-security-policy",
            name,
            /(?:^|;)\s*default-src\s+'none'\s*(?:;|$)/i,
            "contain default-src 'none'",
          ),
        ]
      : []),
  ]);
}

/** Sends a wrong API key to each route that requires one. RFC 9110 §11.6.1 requires a challenge in every 401. */
async function keyChallenges(service: TargetService, url: string): Promise<readonly Finding[]> {
  const header = "www-authenticate";
  const headers = { authorization: "Bearer not-this-key" };
  const status = embedErrorStatus.unauthorized;
  const findings: Finding[] = [];
  for (const embedRoute of Object.values(embedRoutes)) {
    const { method, requiresKey } = embedRoute;
    if (!requiresKey) continue;
    const path = pathOf(embedRoute, { model: service.models[0]!.name });
    const route = `${method} ${path}`;
    const response = await service.http.send(`${url}${path}`, { method, headers, timeoutMs });
    const problem = `${route} with a wrong key must respond with ${status}, got ${response.status}`;
    findings.push(
      response.status === status
        ? findingOf(response, header, route, /^Bearer(?:\s|$)/i, "be a Bearer challenge")
        : { header, problem },
    );
  }
  return findings;
}
