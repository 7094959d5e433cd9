import { describe } from "vitest";
import { realTritonMissing, startRealTriton } from "../../client/triton/test-real-triton.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { restrictModelControl } from "../../contract/triton-flags.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { testModelControl } from "./model-control.suite.ts";
import { fullTestRepository } from "./test-repository.ts";

const model = tritonModelName(defaultModel, "fp32");
const key = "a-key-of-the-test";

describe.skipIf(realTritonMissing !== "")(`a real Triton${realTritonMissing}`, () => {
  testModelControl(key, model, async () => {
    const repository = await fullTestRepository();
    const restricted = Object.entries(restrictModelControl(key)).flatMap(([name, values]) =>
      (values ?? []).map((value) => `--${name}=${value}`),
    );
    const triton = await startRealTriton(repository.path, {
      flags: [
        "--model-config-name=cpu",
        "--model-control-mode=explicit",
        `--load-model=${model}`,
        ...restricted,
      ],
    });
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
