import { Command } from "commander";
import { expect, test } from "vitest";
import { registerBenchGateway } from "./bench-gateway.ts";

async function run(...args: readonly string[]): Promise<void> {
  const command = new Command().exitOverride().configureOutput({ writeErr: () => {} });
  registerBenchGateway(command);
  await command.parseAsync(args, { from: "user" });
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
