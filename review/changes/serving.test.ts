import { expect, test } from "vitest";
import { changeOfDocuments } from "../input/document-change.ts";
import { parseDocument } from "../input/synthesized-document.ts";
import { reviewOf } from "../review.ts";
import { savedChange } from "../test-plans.ts";
import { synthesizedText } from "../test-stacks.ts";

const serving = (name: string) => reviewOf([savedChange(name)]).stacks[0]?.serving;

test("reports image, instances and TensorRT settings of a Triton server, before and after", () => {
  const trt = { instances: "1 on GPU 0", maxBatch: 32, tensorrt: "FP16, 1024 MiB of workspace" };
  expect(serving("image-changed")?.find(({ service }) => service === "triton-trt")).toEqual({
    service: "triton-trt",
    before: { image: "nvcr.io/nvidia/tritonserver:26.05-py3", ...trt },
    after: { image: "nvcr.io/nvidia/tritonserver:26.04-py3", ...trt },
  });
});

test("reports a Triton server of the chart", () => {
  expect(serving("k8s-gpu-updated")).toEqual([
    {
      service: "triton",
      before: {
        image: "registry.example/clipstack/triton:26.07-1",
        instances: "1 on GPU 0",
        maxBatch: 32,
      },
      after: {
        image: "registry.example/clipstack/triton:26.07-2",
        instances: "1 on GPU 0",
        maxBatch: 32,
      },
    },
  ]);
});

test("reports a created or destroyed Triton", () => {
  expect(serving("create")?.map(({ before }) => before)).toEqual([undefined, undefined]);
  expect(serving("stack-destroyed")?.map(({ after }) => after)).toEqual([undefined, undefined]);
});

test("reports a changed number of instances", () => {
  const file = (count: number) =>
    parseDocument(
      synthesizedText("single-gpu", `tritonTrt: { instancesPerGpu: ${count} }`),
      "cdk.tf.json",
    );
  const { stacks } = reviewOf([changeOfDocuments("single-gpu", file(1), file(3))]);
  const trt = stacks[0]?.serving.find(({ service }) => service === "triton-trt");
  expect([trt?.before?.instances, trt?.after?.instances]).toEqual(["1 on GPU 0", "3 on GPU 0"]);
});

test("reports that the precision comes from the graph after a change to TensorRT 11", () => {
  const file = (release: string) =>
    parseDocument(
      synthesizedText(
        "single-gpu",
        `tritonTrt: { image: 'nvcr.io/nvidia/tritonserver:${release}-py3' }`,
      ),
      "cdk.tf.json",
    );
  const { stacks } = reviewOf([changeOfDocuments("single-gpu", file("26.05"), file("26.07"))]);
  const trt = stacks[0]?.serving.find(({ service }) => service === "triton-trt");
  expect([trt?.before?.tensorrt, trt?.after?.tensorrt]).toEqual([
    "FP16, 1024 MiB of workspace",
    "FP16 by model.trt-fp16.onnx, 1024 MiB of workspace",
  ]);
});
