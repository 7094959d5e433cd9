import { expect, test } from "vitest";
import { changeOfDocuments } from "../review/input/document-change.ts";
import { parseDocument } from "../review/input/synthesized-document.ts";
import { markdownComment } from "../review/report/comment-markdown.ts";
import { reviewOf } from "../review/review.ts";
import { synthesizedText } from "../review/test-stacks.ts";
import { withChangedFiles } from "./changed-files.ts";

const own = synthesizedText("single-gpu");

/** Reviews two equal trees after a change of these files. */
function reviewed(...changed: readonly string[]) {
  const [before, after] = [own, withChangedFiles(own, changed)].map((text) =>
    parseDocument(text, "cdk.tf.json"),
  );
  return reviewOf([changeOfDocuments("single-gpu", before, after)]);
}

test("a changed source file of an image replaces the image and its container", () => {
  const { verdict, stacks } = reviewed("inference-image/server.ts");
  expect(verdict.reasons.join()).toContain("embed is temporarily unavailable");
  const replaced = stacks[0]?.changes.filter(({ action }) => action === "replace");
  expect(replaced?.map(({ address }) => address).join()).toContain(
    "docker_image.host_embed-gpu-image",
  );
});

test("a changed base image replaces the image built on it, and rolls out the pods", () => {
  const text = synthesizedText("kind-local");
  const [before, after] = [text, withChangedFiles(text, ["inference-image/main.ts"])].map((it) =>
    parseDocument(it, "cdk.tf.json"),
  );
  const { changes } = reviewOf([changeOfDocuments("kind-local", before, after)]).stacks[0]!;
  const deployment = changes.find(({ title }) => title === "embed/deployment");
  expect(deployment?.impact?.text).toContain("Rolling update");
});

test.each(["inference-image/server.test.ts", "lab/trials/fuzz-main.ts", "docs/review.md"])(
  "%s is not part of any image",
  (file) => {
    expect(reviewed(file).stacks[0]?.changes).toEqual([]);
  },
);

test("a review of two trees without a comparison of their files reports them as not compared", () => {
  const alone = parseDocument(own, "cdk.tf.json");
  const uncompared = reviewOf([changeOfDocuments("single-gpu", alone, alone)]);
  expect(markdownComment(uncompared)).toContain(
    "✅ Safe, except for files that were not compared: ",
  );
  const compared = markdownComment(reviewed());
  expect(compared).toContain("✅ Safe: single-gpu: nothing changes");
  expect(compared).toContain("Changes of files that git ignores, such as weights");
});

test.each([
  ["client", "src/**", "client/src/a/b.ts", true],
  ["client", "src/**", "client/srcs/b.ts", false],
  ["client", "src/**/*.ts", "client/src/b.ts", true],
  [".", "model_repository/m{,_trt}/**", "model_repository/m_trt/1/model.onnx", true],
  [".", "model_repository/m{,_trt}/**", "model_repository/mx/1/model.onnx", false],
  ["helm", "*.yaml", "helm/sub/a.yaml", false],
  ["helm", "**", "helm/.helmignore", true],
])("fileset of %s and %s contains %s: %s", (folder, pattern, file, has) => {
  const text = JSON.stringify({
    locals: { a: `\${fileset("\${path.root}/../../../${folder}", "${pattern}")}` },
  });
  expect(withChangedFiles(text, [file]).includes("#")).toBe(has);
});

test("a file that an expression names is marked", () => {
  const text = JSON.stringify({
    locals: { a: `\${filesha256("\${path.root}/../../../m/model.onnx")}` },
  });
  expect(withChangedFiles(text, ["m/model.onnx"])).toContain(`model.onnx\\")}#`);
  expect(withChangedFiles(text, ["m/other.onnx"])).not.toContain("#");
});
