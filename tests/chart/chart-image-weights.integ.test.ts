import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import type { ChartValues } from "../../constructs/kubernetes/chart-values.ts";
import { noHelm, objectOf, runProgram, template } from "./test-helm.ts";

/** Checksums of weights that the images contain: the init containers of the Triton pods, and their script, which runs here. */

const sha256 = createHash("sha256").update("weights").digest("hex");
const image = { repository: "registry.example/triton", tag: "26.07-1" };
const values = (model: ChartValues["model"], triton: ChartValues["triton"] = {}): ChartValues => ({
  model,
  embed: { backend: "triton" },
  triton: { enabled: true, image, ...triton },
});
const podOf = (given: ChartValues, component = "triton") =>
  objectOf(template(given), "Deployment", `clipstack-${component}`).spec.template.spec;

const folder = mkdtempSync(join(tmpdir(), "clipstack-image-weights-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Runs the container's command on a folder in place of the image's root. */
function runCheck(root: string, expected = sha256) {
  const [check] = podOf(values({ sha256: expected })).initContainers;
  const args = check.args.map((it: string) => it.replace(/^\/models/, `${root}/models`));
  return runProgram(check.command[0], [...check.command.slice(1), ...args]);
}

function imageWith(name: string, files: Readonly<Record<string, string>>): string {
  for (const [path, text] of Object.entries(files)) {
    const target = join(folder, name, "models/openclip_vit_b32/1", path);
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, text);
  }
  return join(folder, name);
}

describe.skipIf(noHelm !== "")(`weights in the images${noHelm && ` (${noHelm})`}`, () => {
  test("are verified by an init container of the Triton image", () => {
    const pod = podOf(values({ sha256 }));
    const [triton] = pod.containers;
    expect(pod.initContainers).toHaveLength(1);
    const [check] = pod.initContainers;
    expect(check).toMatchObject({
      name: "weights",
      image: triton.image,
      imagePullPolicy: triton.imagePullPolicy,
      securityContext: triton.securityContext,
      volumeMounts: [{ name: "tmp", mountPath: "/tmp" }],
    });
    // without the GPUs, which the chart adds
    expect(check.resources.limits).toEqual({ cpu: "4", memory: "8Gi" });
    expect(check.args.slice(1)).toEqual([
      "check-weights",
      "/models/openclip_vit_b32/1/model.onnx",
      sha256,
    ]);
  });

  test("are the file that TensorRT 11 loads, and those of the towers with a checksum", () => {
    const towers = { openclip_vit_b32_text: { sha256 } };
    const given = values({ towers }, { backend: "tensorrt" });
    const pod = podOf({ ...given, models: ["openclip-vit-b32"] });
    expect(pod.initContainers.map(({ name }: { name: string }) => name)).toEqual([
      "weights-openclip-vit-b32-text",
    ]);
    expect(pod.initContainers[0].args[2]).toBe(
      "/models/openclip_vit_b32_text_trt/1/model.trt-fp16.onnx",
    );
  });

  test("are not verified without a checksum, nor by gateways", () => {
    expect(podOf(values({}))).not.toHaveProperty("initContainers");
    expect(podOf(values({ sha256 }), "embed")).not.toHaveProperty("initContainers");
  });

  test("pass with the right checksum", () => {
    const root = imageWith("right", { "model.onnx": "weights" });
    expect(runCheck(root)).toEqual({ code: 0, stdout: "", stderr: "" });
  });

  test.each<[string, Readonly<Record<string, string>>, RegExp]>([
    [
      "other weights",
      { "model.onnx": "others" },
      new RegExp(`model\\.onnx: sha256 must be ${sha256}, got [0-9a-f]{64}\n$`),
    ],
    ["no weights", { "config.txt": "" }, /model\.onnx: must be in the image, and is not\n$/],
    [
      "weights in another file",
      { "model.onnx": "weights", "model.onnx.data": "x" },
      /model\.onnx: must contain its weights to be verified by sha256, got external data .*model\.onnx\.data\n$/,
    ],
  ])("stop the pod with one line on %s", (name, files, message) => {
    const { code, stdout, stderr } = runCheck(imageWith(name, files));
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toMatch(message);
    expect(stderr.trim().split("\n")).toHaveLength(1);
  });
});
