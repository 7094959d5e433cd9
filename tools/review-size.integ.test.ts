import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { startClipstack } from "../cli/test-programs.ts";
import { planText } from "../review/test-plans.ts";

/** Module that prints the maximum resident memory of the process at its exit, in KiB. */
const printMemory = `data:text/javascript,process.on("exit",()=>console.error(process.resourceUsage().maxRSS))`;

test("a review of 2,000 resources uses less than 300 MiB", async () => {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-review-size-"));
  const { resource_changes: own, ...plan } = JSON.parse(planText("queue-delay-changed"));
  const resources = Array.from({ length: 2_000 }, (_, index) => {
    const copy = Math.floor(index / own.length);
    const text = JSON.stringify(own[index % own.length]);
    return JSON.parse(
      text
        .replaceAll("single-gpu-", `single-gpu-${copy}-`)
        .replaceAll(/"(address|name)":"(\w+\.)?/g, `"$1":"$2c${copy}_`),
    );
  });
  const file = join(folder, "plan.json");
  writeFileSync(file, JSON.stringify({ ...plan, resource_changes: resources }));
  const start = performance.now();
  const { done } = startClipstack(["review", "--plan", `big=${file}`], {
    NODE_OPTIONS: `--import=${encodeURI(printMemory)}`,
  });
  const { code, stdout, stderr } = await done;
  const seconds = (performance.now() - start) / 1_000;
  rmSync(folder, { recursive: true });
  const mebibytes = Number(stderr) / 1_024;
  console.log(`2,000 resources: ${seconds.toFixed(1)} s, ${mebibytes.toFixed(0)} MiB`);
  expect({ code, isTruncated: stdout.includes("Shortened") }).toEqual({
    code: 0,
    isTruncated: true,
  });
  // the duration depends on the machine
  expect(mebibytes).toBeGreaterThan(30);
  expect(mebibytes).toBeLessThan(300);
});
