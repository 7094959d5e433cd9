import { readFileSync } from "node:fs";
import { afterAll, expect, test } from "vitest";
import { openVariants } from "./environment-variants.ts";

const variants = openVariants();
afterAll(() => variants.remove());

const environment = "multi-gpu-4x";

/** Names of the services of a synthesized environment. */
function servicesIn(file: string): readonly string[] {
  const { output } = JSON.parse(readFileSync(file, "utf8"));
  return output.environment.value.services.map(({ name }: { readonly name: string }) => name);
}

test("an environment is synthesized with a changed setting without changing its file", async () => {
  const before = variants.settingOf(environment, ["topology"]);
  expect(before).toBe("instance-group");
  const changed = await variants.synthesize(environment, [
    { path: ["topology"], value: "per-gpu" },
    { path: ["perGpu", "gpus"], value: [0, 1] },
  ]);
  expect(servicesIn(changed.file)).toEqual(["embed", "triton-0", "triton-1"]);
  expect(changed.displayPath).toBe('multi-gpu-4x with topology: "per-gpu", perGpu.gpus: [0,1]');
  expect(variants.settingOf(environment, ["topology"])).toBe(before);
});

test("a list setting is returned as an array", () => {
  expect(variants.settingOf("k8s-gpu", ["nodePool", "tolerations"])).toEqual([
    { key: "nvidia.com/gpu", operator: "Exists", effect: "NoSchedule" },
  ]);
});

test("invalid settings are rejected with their error", async () => {
  const wrong = [{ path: ["topology"], value: "ring" }];
  await expect(variants.synthesize(environment, wrong)).rejects.toThrow(
    /topology must be one of instance-group, per-gpu, got 'ring'/,
  );
});
