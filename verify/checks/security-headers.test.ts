import { expect, test } from "vitest";
import { embedPaths } from "../../contract/embed-api.ts";
import { type EmbedRoute, embedRoutes, pathOf } from "../../contract/embed-routes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { checkSecurityHeaders } from "./security-headers.ts";
import { embedService, oneImage, routeOf } from "./test-embed-service.ts";

interface ServerHeaders {
  readonly options?: string | undefined;
  readonly policy?: string | undefined;
  readonly challenge?: string | undefined;
  /** Key of the server. @default - that of the check */
  readonly serverKey?: string;
}

const complete: ServerHeaders = {
  options: "nosniff",
  policy: "default-src 'none'; connect-src 'self'",
  challenge: 'Bearer realm="clipstack"',
};
const apiKey = "0123456789abcdef";

async function resultOf(changes: ServerHeaders, key?: string) {
  const { options, policy, challenge, serverKey = key } = { ...complete, ...changes };
  const service = await embedService(({ url, headers }, response) => {
    if (options !== undefined) response.setHeader("x-content-type-options", options);
    if (url === embedPaths.page && policy !== undefined) {
      response.setHeader("content-security-policy", policy);
    }
    if (routeOf(url)?.requiresKey && serverKey && headers.authorization !== `Bearer ${serverKey}`) {
      response.statusCode = 401;
      if (challenge !== undefined) response.setHeader("www-authenticate", challenge);
    }
    response.end("{}");
  }, key);
  const [result] = await checkSecurityHeaders(service, oneImage);
  return `${result?.outcome}: ${result?.message}`;
}

const apiRoutes: readonly EmbedRoute[] = Object.values(embedRoutes);
const nameOf = (route: EmbedRoute) =>
  `${route.method} ${pathOf(route, { model: defaultModel.name })}`;
const routes = [...apiRoutes.map(nameOf), "GET /no-such-path"];
const protectedRoutes = apiRoutes.filter(({ requiresKey }) => requiresKey).map(nameOf);
/** Headers without a key: one of each route, and the policy of the page. */
const headerCount = routes.length + 1;

test("without an API key, passes the headers of every route and of the page", async () => {
  expect(await resultOf({})).toBe(
    `pass: ${headerCount} headers: x-content-type-options, content-security-policy`,
  );
});

test.each([undefined, "sniff"])("fails on x-content-type-options %s", async (options) => {
  const problem = (route: string) =>
    `x-content-type-options of ${route} must be nosniff, got ${options ?? "none"}`;
  expect(await resultOf({ options })).toBe(`fail: ${routes.map(problem).join("; ")}`);
});

test.each([undefined, "default-src 'self'"])(
  "fails on content-security-policy %s",
  async (policy) => {
    expect(await resultOf({ policy })).toBe(
      `fail: content-security-policy of GET / must contain default-src 'none', got ${policy ?? "none"}`,
    );
  },
);

test("with an API key, passes a challenge on every route that requires it", async () => {
  expect(await resultOf({}, apiKey)).toBe(
    `pass: ${headerCount + protectedRoutes.length} headers: x-content-type-options, content-security-policy, www-authenticate`,
  );
});

test.each([undefined, "Basic"])("fails on www-authenticate %s", async (challenge) => {
  const problem = (route: string) =>
    `www-authenticate of ${route} must be a Bearer challenge, got ${challenge ?? "none"}`;
  expect(await resultOf({ challenge }, apiKey)).toBe(
    `fail: ${protectedRoutes.map(problem).join("; ")}`,
  );
});

test("fails if a wrong key is accepted", async () => {
  const problem = (route: string) => `${route} with a wrong key must respond with 401, got 200`;
  expect(await resultOf({ serverKey: "" }, apiKey)).toBe(
    `fail: ${protectedRoutes.map(problem).join("; ")}`,
  );
});
