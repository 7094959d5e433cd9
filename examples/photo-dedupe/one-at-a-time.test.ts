import { expect, test } from "vitest";
import { oneAtATime } from "./one-at-a-time.ts";

test("runs one after the other, and goes on after a failure", async () => {
  const turns = oneAtATime();
  const steps: string[] = [];
  const work = (name: string) =>
    turns.run(async () => {
      steps.push(`${name} begins`);
      await new Promise((resolve) => setImmediate(resolve));
      steps.push(`${name} ends`);
      if (name === "a") throw new Error("a fails");
      return name;
    });
  const results = await Promise.allSettled([work("a"), work("b")]);
  expect(results.map(({ status }) => status)).toEqual(["rejected", "fulfilled"]);
  expect(steps).toEqual(["a begins", "a ends", "b begins", "b ends"]);
  await turns.idle();
});
