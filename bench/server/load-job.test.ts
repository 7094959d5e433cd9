import { expect, test } from "vitest";
import { parseServerTiming } from "./load-job.ts";

test("reads the durations of a Server-Timing header", () => {
  expect(
    parseServerTiming('preprocess;dur=1.8, queue;desc="in the queue";dur=0.25,infer;dur=40, miss'),
  ).toEqual({ preprocess: 1.8, queue: 0.25, infer: 40 });
});
