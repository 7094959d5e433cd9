import { expect, test } from "vitest";
import { modelCatalogue } from "../../contract/models/index.ts";
import { licenceText } from "./model-output.ts";

test.each([
  ["openclip-vit-b32", /^MIT$/],
  ["mobileclip2-s0", /; restricted: .*[Rr]esearch/],
])("the licence of %s contains the restriction of its use, if any", (name, text) => {
  expect(licenceText(modelCatalogue.get(name)!.licence)).toMatch(text);
});
