import { expect, test } from "vitest";
import { chooseLoads, makePayloads, planRounds } from "./run.ts";

const planned = (excluded: readonly "baseline"[] = []) =>
  planRounds(chooseLoads(["tiny", "single"]), 2, new Set(excluded)).map(
    ({ round, load, subject }) => `${round} ${load.id} ${subject}`,
  );

test("reverses the subjects in every second round", () => {
  expect(planned()).toEqual([
    "1 single ceiling",
    "1 single server",
    "1 single baseline",
    "1 tiny server",
    "1 tiny baseline",
    "2 single baseline",
    "2 single server",
    "2 single ceiling",
    "2 tiny baseline",
    "2 tiny server",
  ]);
});

test("excludes an unavailable baseline", () => {
  expect(planned(["baseline"])).not.toContain("1 single baseline");
  expect(planned(["baseline"])).toHaveLength(6);
});

test("sends each image of a load separately, so that requests stay below the body limit of the server", async () => {
  const chosen = chooseLoads(["batch32"]);
  const { images, eachImage } = await makePayloads(chosen);
  const sent = eachImage(chosen[0]!).map((body) => JSON.parse(body.toString()).images as string[]);
  expect(sent.map((each) => each.length)).toEqual(images.get(chosen[0]!.images)!.map(() => 1));
});
