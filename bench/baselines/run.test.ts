import { expect, test } from "vitest";
import { chooseLoads, makePayloads, planRounds } from "./run.ts";

const planned = (leftOut: readonly "peer"[] = []) =>
  planRounds(chooseLoads(["tiny", "single"]), 2, new Set(leftOut)).map(
    ({ round, load, subject }) => `${round} ${load.id} ${subject}`,
  );

test("reverses the subjects in every second round", () => {
  expect(planned()).toEqual([
    "1 single limit",
    "1 single server",
    "1 single peer",
    "1 tiny server",
    "1 tiny peer",
    "2 single peer",
    "2 single server",
    "2 single limit",
    "2 tiny peer",
    "2 tiny server",
  ]);
});

test("leaves out the peer where it cannot be had", () => {
  expect(planned(["peer"])).not.toContain("1 single peer");
  expect(planned(["peer"])).toHaveLength(6);
});

test("sends each image of a load by itself, so that large photos stay below the size a server takes", async () => {
  const chosen = chooseLoads(["batch32"]);
  const { images, eachImage } = await makePayloads(chosen);
  const sent = eachImage(chosen[0]!).map((body) => JSON.parse(body.toString()).images as string[]);
  expect(sent.map((each) => each.length)).toEqual(images.get(chosen[0]!.images)!.map(() => 1));
});
