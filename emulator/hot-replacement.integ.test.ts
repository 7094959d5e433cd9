import { describe } from "vitest";
import { realTritonMissing, startRealTriton } from "../client/triton/test-real-triton.ts";
import { testHotReplacement } from "./hot-replacement.suite.ts";

describe.skipIf(realTritonMissing !== "")(`a real Triton server${realTritonMissing}`, () => {
  testHotReplacement((repository) =>
    startRealTriton(repository, {
      flags: ["--model-control-mode=explicit", "--load-model=*"],
      onnxRuntime: "emulated",
    }),
  );
});
