import { expect, test } from "vitest";
import { parseTritonArgs, renderTritonCommand } from "./triton-flags.ts";

test("an option that may be given several times is read as it was rendered", () => {
  const flags = { "model-repository": "/models", "load-model": ["a", "b"] };
  const [, ...args] = renderTritonCommand(flags);
  expect(args).toEqual(["--model-repository=/models", "--load-model=a", "--load-model=b"]);
  expect(parseTritonArgs(args)).toMatchObject(flags);
});
