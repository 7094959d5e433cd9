import { expect, test } from "vitest";
import { checkContentType } from "./content-type.ts";
import { embedService, oneImage, routeOf } from "./test-embed-service.ts";

/** Result for a server that sends `contentType` on `path`, and the expected media type on the other routes. */
async function resultOf(path?: string, contentType?: string, status = 200) {
  const service = await embedService(({ url }, response) => {
    const value = url === path ? contentType : `${routeOf(url)?.mediaType}; charset=utf-8`;
    if (value !== undefined) response.setHeader("content-type", value);
    if (url === path) response.statusCode = status;
    response.end("{}");
  });
  const [result] = await checkContentType(service, oneImage);
  return `${result?.outcome}: ${result?.message}`;
}

test("passes media types with a charset on every route", async () => {
  expect(await resultOf()).toBe(
    "pass: POST /embed application/json, POST /embed/base64 application/json, GET /healthz application/json, GET /health application/json, GET /readyz application/json, GET /metrics text/plain, GET /openapi.json application/json, GET / text/html",
  );
});

test.each([undefined, "text/html"])("fails on content-type %s", async (type) => {
  expect(await resultOf("/embed/base64", type)).toBe(
    `fail: content-type of POST /embed/base64 must be application/json, got ${type ?? "none"}`,
  );
});

test("fails on an error status", async () => {
  expect(await resultOf("/readyz", "application/json", 503)).toBe(
    "fail: GET /readyz must respond with 200, got 503",
  );
});
