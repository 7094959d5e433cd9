import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { renderHtml } from "../../report/render/render-html.ts";
import { verifyReport } from "../../verify/verify-report.ts";
import { failedCheck, testRecord } from "../record/test-record.ts";
import { benchReport } from "./bench-report.ts";
import { testBenchRecord, testSimulationRecord } from "./test-bench-record.ts";
import {
  axeViolations,
  beforePrint,
  hiddenRows,
  openAll,
  pageWidth,
  plotFacts,
  poorContrast,
} from "./test-page-probes.ts";

/** The page of a report in a real browser, opened from disk with the network off. */

const executable = [
  process.env.CLIPSTACK_CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((endpoint) => endpoint !== undefined && existsSync(endpoint));
if (executable === undefined) {
  console.warn(
    "skipped: the report in a browser needs Chromium (CLIPSTACK_CHROMIUM, or /usr/bin/chromium)",
  );
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface PlotFacts {
  readonly name: string;
  readonly width: number;
  readonly marks: number;
  readonly outside: readonly string[];
  readonly smallest: number;
}

interface PageOptions {
  readonly dark?: boolean;
  readonly width?: number;
  readonly of?: "simulation" | "verify";
  readonly script?: boolean;
}

describe.skipIf(executable === undefined)("the report in Chromium", () => {
  let browser: Browser;
  let folder: string;
  const files = { deployed: "", simulation: "", verify: "" };

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "clipstack-report-"));
    const verified = testRecord();
    const checks = [...verified.checks, failedCheck()];
    for (const [name, report] of [
      ["deployed", benchReport(testBenchRecord())],
      ["simulation", benchReport(testSimulationRecord())],
      ["verify", verifyReport({ ...verified, checks })],
    ] as const) {
      files[name] = join(folder, `${name}.html`);
      writeFileSync(files[name], renderHtml(report));
    }
    // in a container and as root there is no sandbox to be had
    browser = await chromium.launch({ executablePath: executable, args: ["--no-sandbox"] });
  });

  afterAll(async () => {
    await browser?.close();
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  });

  /** Opens a report; `complaints` collects its console messages and its requests for other files. */
  async function withPage<T>(
    options: PageOptions,
    use: (page: Page, complaints: readonly string[]) => Promise<T>,
  ): Promise<T> {
    const context = await browser.newContext({
      viewport: { width: options.width ?? 1200, height: 900 },
      colorScheme: options.dark === true ? "dark" : "light",
      javaScriptEnabled: options.script !== false,
      offline: true,
    });
    try {
      const page = await context.newPage();
      const complaints: string[] = [];
      const url = pathToFileURL(files[options.of ?? "deployed"]).href;
      page.on("console", (message) => complaints.push(`${message.type()}: ${message.text()}`));
      page.on("pageerror", (error) => complaints.push(error.message));
      page.on("request", (request) => {
        if (request.url() !== url) complaints.push(`requested ${request.url()}`);
      });
      await page.goto(url);
      return await use(page, complaints);
    } finally {
      await context.close();
    }
  }

  test("opens without console messages or further requests", async () => {
    await withPage({}, async (page, complaints) => {
      await page.getByRole("button", { name: "p50 ms" }).first().click();
      expect(complaints).toEqual([]);
    });
  });

  test("draws every plot with a size, marks and no overflowing text", async () => {
    const plots = await withPage({}, (page) => page.evaluate<readonly PlotFacts[]>(plotFacts));
    expect(plots.length).toBeGreaterThan(7);
    for (const { name, width, marks, outside } of plots) {
      expect(width, name).toBeGreaterThan(600);
      expect(marks, name).toBeGreaterThan(1);
      expect(outside, name).toEqual([]);
    }
  });

  test("a heading sorts its table in both directions and announces it", async () => {
    await withPage({}, async (page) => {
      const table = page.locator("section[aria-labelledby=paths] table.data");
      const heading = table.getByRole("columnheader", { name: "images/s" });
      const figures = async () =>
        (await table.locator("tbody tr td:nth-child(5)").allTextContents()).map(Number);
      await heading.getByRole("button").click();
      const up = await figures();
      expect(await heading.getAttribute("aria-sort")).toBe("ascending");
      expect(up).toEqual([...up].sort((a, b) => a - b));
      await expect.poll(() => page.locator("#status").textContent()).toContain("ascending");
      await heading.getByRole("button").click();
      expect(await heading.getAttribute("aria-sort")).toBe("descending");
      expect(await figures()).toEqual([...up].reverse());
      expect(await table.locator("th[aria-sort]").count()).toBe(1);
    });
  });

  test("absent figures are last in both sort orders", async () => {
    await withPage({}, async (page) => {
      const table = page.locator("section[aria-labelledby=concurrency] table.data").first();
      const heading = table
        .getByRole("columnheader", { name: "fitted peak images/s" })
        .getByRole("button");
      for (let i = 0; i < 2; i++) {
        await heading.click();
        const cells = await table.locator("tbody tr td:nth-child(5)").allTextContents();
        expect(cells.at(-1)).toBe("–");
      }
    });
  });

  test("sorting works with the keyboard", async () => {
    await withPage({}, async (page) => {
      const table = page.locator("section[aria-labelledby=paths] .table");
      const heading = table.getByRole("columnheader", { name: "p95 ms" });
      await heading.getByRole("button").focus();
      await page.keyboard.press("Enter");
      expect(await heading.getAttribute("aria-sort")).toBe("ascending");
    });
  });

  test.each([
    ["light", {}],
    ["dark", { dark: true }],
    ["narrow", { width: 390 }],
    ["narrow and dark", { width: 390, dark: true }],
    ["of local processes", { of: "simulation" }],
    ["of a verification", { of: "verify" }],
    ["of a verification, narrow and dark", { of: "verify", width: 390, dark: true }],
  ] as const)("axe-core finds nothing wrong, contrast included: %s", async (_name, options) => {
    const violations = await withPage(options, async (page) => {
      // all that is folded away counts too
      await page.evaluate(openAll);
      await page.evaluate(axe);
      return page.evaluate<readonly string[]>(axeViolations);
    });
    expect(violations).toEqual([]);
  });

  test.each([
    ["light", false],
    ["dark", true],
  ] as const)("texts and marks of the plots stand out from the page: %s", async (_name, dark) => {
    const poor = await withPage({ dark }, (page) => page.evaluate<readonly string[]>(poorContrast));
    expect(poor).toEqual([]);
  });

  test.each(["deployed", "verify"] as const)(
    "on a narrow screen nothing but tables is wider than the screen, and texts of plots are large enough: %s",
    async (of) => {
      await withPage({ width: 390, ...(of === "verify" ? { of } : {}) }, async (page) => {
        expect(await page.evaluate<number>(pageWidth)).toBeLessThanOrEqual(390);
        // shadows show that a table continues
        expect(
          await page.evaluate(
            `getComputedStyle(document.querySelector(".scroll")).backgroundAttachment`,
          ),
        ).toBe("local, local, scroll, scroll");
        for (const { name, smallest, outside } of await page.evaluate<readonly PlotFacts[]>(
          plotFacts,
        )) {
          expect(smallest, name).toBeGreaterThan(11);
          expect(outside, name).toEqual([]);
        }
      });
    },
  );

  test("prints all rows, also of collapsed tables, and no buttons", async () => {
    await withPage({}, async (page) => {
      await page.emulateMedia({ media: "print" });
      await page.evaluate(beforePrint);
      expect(await page.evaluate<number>(hiddenRows)).toBe(0);
      const pdf = await page.pdf({ format: "A4" });
      expect(pdf.length).toBeGreaterThan(50_000);
    });
  });

  test("is complete without its script", async () => {
    await withPage({ script: false }, async (page, complaints) => {
      expect(await page.getByRole("heading", { name: "Recommendations" }).isVisible()).toBe(true);
      expect(await page.locator("figure svg[role=img]:visible").count()).toBeGreaterThan(7);
      expect(await page.locator("button").count()).toBe(0);
      expect(complaints).toEqual([]);
    });
  });

  test("links lead to the sections of the page", async () => {
    await withPage({}, async (page) => {
      await page.getByRole("link", { name: "Latency by part" }).click();
      const heading = page.getByRole("heading", { name: "Latency by part" });
      await expect.poll(async () => (await heading.boundingBox())?.y ?? 1e6).toBeLessThan(300);
    });
  });
});
