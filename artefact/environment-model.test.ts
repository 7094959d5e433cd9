import { expect, test } from "vitest";
import { parseArtefact } from "./artefact.ts";
import { environmentModel } from "./environment-model.ts";
import { dockerDocument, type TestDocument, volumesDocument } from "./test-artefact.ts";

const file = "/data/models/openclip_vit_b32/1/model.onnx";

function modelOf(document: TestDocument, existing = file): string | undefined {
  const artefact = parseArtefact(JSON.stringify(document), "one.json");
  return environmentModel(
    artefact,
    "openclip-vit-b32",
    "image",
    "/project/cdktf.out/stacks/one",
    (path) => path === existing,
  );
}

test("is the file that the weights volume is filled from", () => {
  expect(modelOf(volumesDocument("", { repository: "/data/models" }))).toBe(file);
});

test("is the file in a mounted folder", () => {
  expect(modelOf(dockerDocument({ repository: "/data/models" }))).toBe(file);
});

test("is relative to the folder of cdk.tf.json", () => {
  const inProject = "/project/model_repository/openclip_vit_b32/1/model.onnx";
  const repository = `\${path.root}/../../../model_repository`;
  expect(modelOf(volumesDocument("", { repository }), inProject)).toBe(inProject);
});

test("is absent if it is not on this machine", () => {
  expect(modelOf(volumesDocument("", { repository: "/elsewhere" }))).toBeUndefined();
});
