import { expect, test } from "vitest";
import { embedRoutes, pathOf } from "../../contract/embed-routes.ts";
import { withModalities } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { checkContentType } from "./content-type.ts";
import { embedService, oneImage, routeOf } from "./test-embed-service.ts";

/** Result for a server that sends `contentType` on `path`, and the expected media type on the other routes. */
async function resultOf(path?: string, contentType?: string, status = 200, model = defaultModel) {
  const service = await embedService(
    ({ url }, response) => {
      const value = url === path ? contentType : `${routeOf(url)?.mediaType}; charset=utf-8`;
      if (value !== undefined) response.setHeader("content-type", value);
      if (url === path) response.statusCode = status;
      response.end("{}");
    },
    undefined,
    model,
  );
  const [result] = await checkContentType(service, oneImage);
  return `${result?.outcome}: ${result?.message}`;
}

const { embed, embedBase64, embedText } = embedRoutes;

test.each([
  ["images and texts", ["image", "text"], []],
  ["images", ["image"], [embedText]],
  ["texts", ["text"], [embed, embedBase64]],
] as const)(
  "passes media types with a charset on every route of a server of %s",
  async (_name, modalities, omitted) => {
    const routes = Object.values(embedRoutes)
      .filter((route) => !omitted.some((other) => other === route))
      .map(
        (route) =>
          `${route.method} ${pathOf(route, { model: defaultModel.name })} ${route.mediaType}`,
      );
    const model = withModalities(defaultModel, modalities);
    expect(await resultOf(undefined, undefined, 200, model)).toBe(`pass: ${routes.join(", ")}`);
  },
);

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
