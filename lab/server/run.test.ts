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

test("measures the towers instead of the default model", () => {
  const towers = [
    { model: "dinov2-small", modality: "image" },
    { model: "openclip-vit-b32", modality: "text" },
  ] as const;
  const ids = (names: readonly string[]) => chooseLoads(names, towers).map(({ id }) => id);
  expect(ids([])).toEqual([
    "dinov2-small:image:single",
    "dinov2-small:image:c16",
    "openclip-vit-b32:text:single",
    "openclip-vit-b32:text:c16",
  ]);
  expect(ids(["c16"])).toEqual(["dinov2-small:image:c16", "openclip-vit-b32:text:c16"]);
});

test("sends one text per request to a text tower", async () => {
  const [load] = chooseLoads([], [{ model: "openclip-vit-b32", modality: "text" }]);
  const { images, bodies } = await makePayloads([load!]);
  expect(images.size).toBe(0);
  for (const body of bodies(load!)) expect(JSON.parse(body.toString()).texts).toHaveLength(1);
});
