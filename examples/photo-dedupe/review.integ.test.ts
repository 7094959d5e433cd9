import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import type { FastifyInstance } from "fastify";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { decide } from "./review-data.ts";
import { buildReviewApp } from "./review-server.ts";
import { type ReviewSet, reviewSet } from "./test-review.ts";

/** The review page in a real browser. */

const executable = [
  process.env.CLIPSTACK_CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((path) => path !== undefined && existsSync(path));
if (executable === undefined) {
  console.warn(
    "skipped: the review page in a browser needs Chromium (CLIPSTACK_CHROMIUM, or /usr/bin/chromium)",
  );
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Expressions for the page are text, because Node's types do not include the DOM. */
const axeViolations = `
axe.run().then(({ violations }) =>
  violations.map(({ id, nodes }) => id + ": " + nodes[0].html + " " + nodes[0].failureSummary))`;

describe.skipIf(executable === undefined)("the review page in Chromium", () => {
  let browser: Browser;
  let context: BrowserContext;
  let set: ReviewSet;
  let app: FastifyInstance;
  let page: Page;
  const complaints: string[] = [];
  const strangers: string[] = [];

  beforeAll(async () => {
    browser = await chromium.launch({ executablePath: executable, args: ["--no-sandbox"] });
  });

  afterAll(() => browser?.close());

  beforeEach(async () => {
    set = await reviewSet();
    app = buildReviewApp(set.database);
    const url = await app.listen({ host: "127.0.0.1", port: 0 });
    context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    page = await context.newPage();
    complaints.length = 0;
    strangers.length = 0;
    page.on("console", (message) => {
      if (message.type() === "error") complaints.push(message.text());
    });
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("request", (request) => {
      if (!request.url().startsWith(url)) strangers.push(request.url());
    });
    await page.goto(url);
    await page.getByText("Group 1 of 2").waitFor();
  });

  afterEach(async () => {
    const shots = process.env.CLIPSTACK_SCREENSHOTS;
    if (shots !== undefined) {
      mkdirSync(shots, { recursive: true });
      const name = expect.getState().currentTestName?.replace(/[^a-z0-9]+/gi, "-");
      await page.screenshot({ path: join(shots, `${name}.png`) });
    }
    await context.close();
    app.server.closeAllConnections();
    await app.close();
    set.database.close();
    expect(complaints).toEqual([]);
    expect(strangers).toEqual([]);
  });

  const decisionOf = (path: string) =>
    set.database.get<{ readonly decision: string | null }>(
      "SELECT decision FROM photos WHERE id = ?",
      set.id(path),
    )?.decision;
  const pressed = () => page.locator(".choices button[aria-pressed=true]").allTextContents();
  const shows = (text: string) => page.locator("#message", { hasText: text }).waitFor();

  test("keeps, rejects and undoes with the mouse, and shows the same after a reload", async () => {
    await page.getByRole("button", { name: "Keep one.jpg in a" }).click();
    await shows("one.jpg: kept");
    await page.getByRole("button", { name: "Reject two.jpg in a" }).click();
    await shows("two.jpg: rejected");
    expect([decisionOf("a/one.jpg"), decisionOf("a/two.jpg")]).toEqual(["keep", "reject"]);

    await page.reload();
    await page.getByText("2 of 5 photos decided").waitFor();
    expect(await pressed()).toEqual(["Keep", "Reject"]);

    await page.getByRole("button", { name: "Reject two.jpg in a" }).click();
    await shows("two.jpg: undecided");
    expect(await pressed()).toEqual(["Keep"]);
    expect(decisionOf("a/two.jpg")).toBeNull();
  });

  test("supports the keyboard for every action", async () => {
    await page.keyboard.press("k");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("r");
    await shows("two.jpg: rejected");
    expect([decisionOf("a/one.jpg"), decisionOf("a/two.jpg")]).toEqual(["keep", "reject"]);

    // the same key again undoes the decision
    await page.keyboard.press("r");
    await shows("two.jpg: undecided");
    expect(decisionOf("a/two.jpg")).toBeNull();

    await page.keyboard.press("n");
    await page.getByText("Group 2 of 2").waitFor();
    await page.keyboard.press("a");
    await shows("Suggestion accepted");
    expect(await pressed()).toEqual(["Keep", "Reject"]);

    await page.keyboard.press("p");
    await page.getByText("Group 1 of 2").waitFor();
    await page.keyboard.press("o");
    await page.locator("#large[open]").waitFor();
    await page.keyboard.press("ArrowRight");
    await page.locator("#large-name", { hasText: "three.webp" }).waitFor();
    await page.keyboard.press("Escape");
    await page.locator("#large:not([open])").waitFor({ state: "attached" });
  });

  test("accepts the suggestion and keeps photos kept manually", async () => {
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("k");
    await shows("three.webp: kept");
    await page.keyboard.press("a");
    await shows("Suggestion accepted");
    expect(await pressed()).toEqual(["Keep", "Keep", "Reject"]);
  });

  test("confirms all rejected photos, also those of other windows", async () => {
    decide(set.database, [{ photo: set.id("b/two.jpg"), decision: "reject" }]);
    await page.keyboard.press("r");
    await shows("one.jpg: rejected");
    decide(set.database, [{ photo: set.id("a/two.jpg"), decision: "reject" }]);
    await page.keyboard.press("m");
    await page.getByRole("dialog").getByText("3 photos are moved").waitFor();
  });

  test("handles several fast keys", async () => {
    for (const key of ["k", "ArrowRight", "r", "ArrowRight", "r", "n", "r"]) {
      page.keyboard.press(key);
    }
    await expect
      .poll(() =>
        ["a/one.jpg", "a/three.webp", "a/two.jpg", "b/<b>one.jpg"].map((path) => decisionOf(path)),
      )
      .toEqual(["keep", "reject", "reject", "reject"]);
    await page.getByText("Group 2 of 2").waitFor();
  });

  test("moves rejected photos after a confirmation and restores them", async () => {
    await page.keyboard.press("r");
    await shows("one.jpg: rejected");
    await page.keyboard.press("m");
    await page.getByRole("dialog").getByText("1 photo is moved").waitFor();
    await page.getByRole("button", { name: "Move", exact: true }).click();
    await shows("1 photo moved.");
    expect(existsSync(join(set.folder, "a/one.jpg"))).toBe(false);
    await page.getByText("Moved.", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Moved photos (1)" }).click();
    await page.getByRole("button", { name: "Restore a/one.jpg" }).click();
    await shows("1 photo restored.");
    expect(existsSync(join(set.folder, "a/one.jpg"))).toBe(true);
  });

  test("warns if no photo of a group would remain", async () => {
    await page.keyboard.press("n");
    await page.getByText("Group 2 of 2").waitFor();
    await page.keyboard.press("r");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("r");
    await page.getByText("2 rejected").waitFor();
    await page.keyboard.press("m");
    await page.getByText("No photo remains of 1 group.").waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    expect(existsSync(join(set.folder, "b/two.jpg"))).toBe(true);
  });

  test("shows a name with HTML as text", async () => {
    await page.keyboard.press("n");
    await page.locator(".name", { hasText: "<b>one.jpg" }).waitFor();
    expect(await page.locator(".name b").count()).toBe(0);
  });

  test("shows the differences and the suggested photo with its reason", async () => {
    await page
      .getByText("Suggested keeper: most pixels (480 × 320), has the time it was taken")
      .waitFor();
    expect(await page.locator("dd.differs").count()).toBe(12);
  });

  test("reports that the server has stopped", async () => {
    app.server.closeAllConnections();
    await app.close();
    await page.keyboard.press("k");
    await shows("The server of this page has stopped: start it again.");
    // the browser's own message about the connection
    complaints.length = 0;
  });

  for (const scheme of ["light", "dark"] as const) {
    test(`has no accessibility violations found by axe, ${scheme}, including dialogs`, async () => {
      await page.emulateMedia({ colorScheme: scheme });
      await page.keyboard.press("a");
      await shows("Suggestion accepted");
      await page.evaluate(axe);
      expect(await page.evaluate(axeViolations)).toEqual([]);
      for (const key of ["o", "m"]) {
        await page.keyboard.press(key);
        await page.locator("dialog[open]").waitFor();
        expect(await page.evaluate(axeViolations), key).toEqual([]);
        await page.keyboard.press("Escape");
      }
    });
  }

  test("fits a narrow window", async () => {
    await page.setViewportSize({ width: 360, height: 700 });
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(360);
  });
});
