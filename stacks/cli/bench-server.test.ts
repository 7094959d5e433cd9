import { expect, test, vi } from "vitest";
import { main } from "./bench-server.ts";

/** Exit code and what was written to stderr. */
async function run(...args: string[]): Promise<{ code: number; stderr: string }> {
  const lines: string[] = [];
  const write = (text: unknown) => lines.push(String(text)) > 0;
  const spies = [
    vi.spyOn(process.stderr, "write").mockImplementation(write),
    vi.spyOn(process.stdout, "write").mockImplementation(() => true),
    vi.spyOn(console, "error").mockImplementation(write),
  ];
  try {
    return { code: await main(args), stderr: lines.join("\n") };
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
}

test("fails with code 2 on a load that there is not", async () => {
  expect(await run("--only", "c16", "c17")).toEqual({
    code: 2,
    stderr:
      "bench:server: --only must be of single, c16, batch32, photos, 12mp, tiny, int8, health, got 'c17'",
  });
});

test("fails with code 2 on a number that is none", async () => {
  const { code, stderr } = await run("--rounds", "many");
  expect(code).toBe(2);
  expect(stderr).toContain("It must be an integer, 1 to 100.");
});

test("explains itself", async () => {
  expect((await run("--help")).code).toBe(0);
});

test("takes all its options, and says what is wrong with one of them", async () => {
  const good = ["--quick", "--no-peer", "--strict", "--rounds", "5", "--report", "reports"];
  const { code, stderr } = await run(...good, "--only", "all");
  expect(code).toBe(2);
  expect(stderr).toContain("--only must be of single");
});
