import { describe } from "vitest";
import { realTritonMissing, startRealTriton } from "../../client/triton/test-real-triton.ts";
import { openclipVitB32 } from "../../contract/model-signature.ts";
import { restrictModelControl } from "../../contract/triton-flags.ts";
import { testModelControl } from "./model-control.suite.ts";
import { fullTestRepository } from "./test-repository.ts";

const model = openclipVitB32.name;
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
