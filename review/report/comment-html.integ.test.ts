import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Browser, chromium } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { reviewOf } from "../review.ts";
import { findingsOfChange } from "../rules/findings.ts";
import { savedChange } from "../test-plans.ts";
import { htmlReport } from "./comment-html.ts";

/** Opens the HTML page of a review from disk in a real browser. */

const executable = [
  process.env.CLIPSTACK_CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((path) => path !== undefined && existsSync(path));
const missing = executable === undefined ? " (not here: no Chromium, CLIPSTACK_CHROMIUM)" : "";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

describe.skipIf(executable === undefined)(`the HTML page of a review${missing}`, () => {
  let browser: Browser;
  const folder = mkdtempSync(join(tmpdir(), "clipstack-review-page-"));
  const file = join(folder, "review.html");

  beforeAll(async () => {
    const changes = ["gpu-swapped", "port-exposed"].map((name) => ({
      ...savedChange(name),
      stack: name,
    }));
    const findings = changes.flatMap((change) =>
      findingsOfChange(change, { waivers: [], today: "2026-11-30" }),
    );
    const predict = ({ gpu }: { readonly gpu?: { readonly name: string } }) =>
      gpu === undefined ? undefined : { imagesPerSecond: 1_429, source: "for this example" };
    writeFileSync(file, htmlReport(reviewOf(changes, { findings, predict })));
    // the sandbox is unavailable in a container and as root
    browser = await chromium.launch({ executablePath: executable, args: ["--no-sandbox"] });
  });
  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const open = async (width: number, colorScheme: "light" | "dark") => {
    const page = await browser.newPage({
      viewport: { width, height: 900 },
      colorScheme,
      bypassCSP: true,
    });
    const problems: string[] = [];
    page.on("console", (message) => problems.push(message.text()));
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("request", (request) => {
      if (!request.url().startsWith("file:")) problems.push(request.url());
    });
    await page.goto(pathToFileURL(file).href);
    return { page, problems };
  };

  test.each([
    [1_280, "light"],
    [390, "dark"],
  ] as const)(
    "at %i px, %s, fits the window, is accessible and loads nothing",
    async (width, scheme) => {
      const { page, problems } = await open(width, scheme);
      expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(width);
      expect(
        await page.evaluate(
          `getComputedStyle(document.querySelector(".wide")).backgroundAttachment`,
        ),
      ).toBe("local, local, scroll, scroll");
      await page.addScriptTag({ content: axe });
      const violations = await page.evaluate(
        "axe.run().then(({ violations }) => violations.map(({ id }) => id))",
      );
      expect(violations).toEqual([]);
      expect(problems).toEqual([]);
      await page.close();
    },
  );

  test("shows the reasons of the verdict without scrolling or clicking", async () => {
    const { page } = await open(1_280, "light");
    for (const text of [
      "Needs attention",
      "embed is temporarily unavailable",
      "port 8002/tcp on 0.0.0.0",
    ]) {
      const box = await page.getByText(text).first().boundingBox();
      expect(box?.y, text).toBeLessThan(900);
    }
    await page.close();
  });
});
