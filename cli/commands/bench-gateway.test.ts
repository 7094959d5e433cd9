import { expect, test } from "vitest";
import { clipstackProgram } from "../program.ts";

async function run(...args: readonly string[]): Promise<void> {
  const program = await clipstackProgram(["bench-gateway"]);
  for (const command of program.commands) command.configureOutput({ writeErr: () => {} });
  await program.parseAsync(["bench-gateway", ...args], { from: "user" });
}

test("fails on an unknown load, and accepts every option", async () => {
  const good = ["--quick", "--no-baseline", "--strict", "--rounds", "5", "--report", "reports"];
  await expect(run(...good, "--only", "photos", "photo")).rejects.toThrow(
    "--only must be of thumbnails, photos, 12mp, got 'photo'",
  );
});

test("fails if the length of a measurement is not a number of seconds", async () => {
  await expect(run("--seconds", "0")).rejects.toThrow("It must be more than 0 and at most 40.");
});
