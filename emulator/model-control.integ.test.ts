import { readdir, readFile } from "node:fs/promises";
import { describe, expect } from "vitest";
import { realTritonMissing, startRealTriton } from "../client/triton/test-real-triton.ts";
import { defaultModel } from "../contract/models/index.ts";
import { modelControlKeyVariable, restrictControl } from "../contract/triton-flags.ts";
import { tritonLauncher } from "../contract/triton-launcher.ts";
import { tritonModelName } from "../contract/triton-models.ts";
import { testModelControl } from "./model-control.suite.ts";
import { fullTestRepository } from "./test-repository.ts";

const model = tritonModelName(defaultModel, "fp32");
const key = "a-key-of-the-test";

describe.skipIf(realTritonMissing !== "")(`a real Triton server${realTritonMissing}`, () => {
  testModelControl(key, model, async () => {
    const repository = await fullTestRepository();
    const restricted = Object.entries(restrictControl("key")).flatMap(([name, values]) =>
      values.map((value) => `--${name}=${value}`),
    );
    const triton = await startRealTriton(repository.path, {
      flags: ["--model-control-mode=explicit", `--load-model=${model}`, ...restricted],
      prefix: ["python3", "-c", tritonLauncher],
      env: { [modelControlKeyVariable]: key },
    });
    const commands = await commandLines();
    expect(commands).toContainEqual(expect.stringContaining(`--http-port=${triton.ports[0]}`));
    expect(commands.filter((line) => line.includes(key))).toEqual([]);
    return {
      url: triton.url,
      grpcTarget: triton.grpcTarget,
      stop: async () => {
        await triton.stop();
        await repository.remove();
      },
    };
  });
});

/** Command lines of all processes of this machine, as every user can read them. */
async function commandLines(): Promise<readonly string[]> {
  const ids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  return await Promise.all(
    ids.map((id) => readFile(`/proc/${id}/cmdline`, "utf8").catch(() => "")),
  );
}
