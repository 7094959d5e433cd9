import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { type Browser, chromium } from "playwright-core";

/**
 * `npx tsx docs/images/make-screenshots.ts`: renders the screenshots of the documentation in Chromium (`CLIPSTACK_CHROMIUM`, or
 * `/usr/bin/chromium`). The screenshot of a review is written by its test with `CLIPSTACK_WRITE_PLANS=1`.
 */

const root = fileURLToPath(new URL("../../", import.meta.url));
const executablePath = process.env.CLIPSTACK_CHROMIUM ?? "/usr/bin/chromium";
const maxBytes = 300_000;

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
try {
  await benchReport(browser);
  await reviewPage(browser);
} finally {
  await browser.close();
}

async function benchReport(from: Browser): Promise<void> {
  const report = join(root, "bench/reports/2026-11-22T02-22-27Z-bench-single-gpu.html");
  await picture(from, "bench-report.png", pathToFileURL(report).href, { height: 1_250 });
}

/** Captures the review page of photo-dedupe with generated photos. */
async function reviewPage(from: Browser): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-screenshots-"));
  const program = join(root, "examples/photo-dedupe/clipstack-dedupe.mjs");
  const dedupe = (...args: readonly string[]) =>
    execFileSync(process.execPath, [program, ...args], { cwd: folder, stdio: "inherit" });
  try {
    dedupe("make-photos", "photos");
    dedupe("scan", "photos");
    dedupe("group", "--by", "hash");
    const page = spawn(process.execPath, [program, "review", "--port", "0"], {
      cwd: folder,
      stdio: ["ignore", "pipe", "inherit"],
    });
    try {
      let url: string | undefined;
      for await (const line of createInterface(page.stdout)) {
        url = /http:\/\/127\.0\.0\.1:\d+\S*/.exec(line)?.[0];
        if (url !== undefined) break;
      }
      if (url === undefined) throw new Error("the review page printed no URL");
      await picture(from, "dedupe-review.png", url, { height: 770, waitFor: "Group 1 of" });
    } finally {
      page.kill("SIGINT");
      await once(page, "close");
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

interface PictureOptions {
  readonly height: number;
  /** Text that appears once the page is complete. */
  readonly waitFor?: string;
}

async function picture(
  from: Browser,
  name: string,
  url: string,
  { height, waitFor }: PictureOptions,
): Promise<void> {
  const page = await from.newPage({ viewport: { width: 1_100, height }, colorScheme: "light" });
  await page.goto(url);
  if (waitFor !== undefined) await page.getByText(waitFor).waitFor();
  await page.waitForLoadState("networkidle");
  const path = fileURLToPath(new URL(name, import.meta.url));
  await page.screenshot({ path });
  await page.close();
  const { size } = statSync(path);
  if (size > maxBytes) throw new Error(`${name} must be at most ${maxBytes} bytes, got ${size}`);
  console.log(`${name}: ${size} bytes`);
}
