import { copyFileSync, existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import type { FastifyInstance } from "fastify";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { axe, axeViolations, chromiumPath } from "../../inference-image/server/test-browser.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { decide } from "./review-data.ts";
import { buildReviewApp } from "./review-server.ts";
import { type ReviewSet, reviewSet } from "./test-review.ts";

/** The review page in a real browser. */

if (chromiumPath === undefined) {
  console.warn(
    "skipped: the review page in a browser needs Chromium (CLIPSTACK_CHROMIUM, or /usr/bin/chromium)",
  );
}

const copyName = (index: number) => `copy-${String(index).padStart(5, "0")}.jpg`;

/** Adds a group of files with the same bytes to the index. */
function addCopies({ database, folder }: ReviewSet, count: number): void {
  for (let i = 0; i < Math.min(count, 200); i++) {
    copyFileSync(join(folder, "b/two.jpg"), join(folder, copyName(i)));
  }
  add(database, count, (i) => ({ path: join(folder, copyName(i)), sha256: "copy", position: 2 }));
}

/** Adds groups of two photos to the index, whose files do not exist. */
function addGroups({ database, folder }: ReviewSet, count: number): void {
  add(database, 2 * count, (i) => ({
    path: join(folder, `more/${i}.jpg`),
    sha256: String(i),
    position: 3 + Math.floor(i / 2),
  }));
}

function add(
  database: PhotoDatabase,
  count: number,
  photo: (index: number) => { path: string; sha256: string; position: number },
): void {
  database.transaction(() => {
    for (let i = 0; i < count; i++) {
      const { path, sha256, position } = photo(i);
      database.run(
        `INSERT INTO photos (path, root, bytes, mtime_ms, seen, state, sha256, hash, format, width, height, position)
         VALUES (?, '/', 1000, 1, 1, 'present', ?, '00ff00ff00ff00ff', 'jpeg', 300, 300, ?)`,
        path,
        sha256,
        position,
      );
    }
  });
}

describe.skipIf(chromiumPath === undefined)("the review page in Chromium", () => {
  let browser: Browser;
  let context: BrowserContext;
  let set: ReviewSet;
  let app: FastifyInstance;
  let page: Page;
  const complaints: string[] = [];
  const strangers: string[] = [];

  beforeAll(async () => {
    browser = await chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox"] });
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
  const expectPressed = (labels: readonly string[]) =>
    expect
      .poll(() => page.locator(".choices button[aria-pressed=true]").allTextContents())
      .toEqual(labels);
  const expectDecisions = (decisions: Readonly<Record<string, string | null>>) =>
    expect
      .poll(() =>
        Object.fromEntries(Object.keys(decisions).map((path) => [path, decisionOf(path)])),
      )
      .toEqual(decisions);
  const expectCount = (selector: string, count: number) =>
    expect.poll(() => page.locator(selector).count()).toBe(count);
  const shows = (text: string) => page.locator("#message", { hasText: text }).waitFor();

  test("keeps, rejects and undoes with the mouse, and shows the same after a reload", async () => {
    await page.getByRole("button", { name: "Keep one.jpg in a" }).click();
    await shows("one.jpg: kept");
    await page.getByRole("button", { name: "Reject two.jpg in a" }).click();
    await shows("two.jpg: rejected");
    await expectDecisions({ "a/one.jpg": "keep", "a/two.jpg": "reject" });

    await page.reload();
    await page.getByText("2 of 5 photos decided").waitFor();
    await expectPressed(["Keep", "Reject"]);

    await page.getByRole("button", { name: "Reject two.jpg in a" }).click();
    await shows("two.jpg: undecided");
    await expectPressed(["Keep"]);
    await expectDecisions({ "a/two.jpg": null });
  });

  test("supports the keyboard for every action", async () => {
    await page.keyboard.press("k");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("r");
    await shows("two.jpg: rejected");
    await expectDecisions({ "a/one.jpg": "keep", "a/two.jpg": "reject" });

    // the same key again undoes the decision
    await page.keyboard.press("r");
    await shows("two.jpg: undecided");
    await expectDecisions({ "a/two.jpg": null });

    await page.keyboard.press("n");
    await page.getByText("Group 2 of 2").waitFor();
    await page.keyboard.press("a");
    await shows("Suggestion accepted");
    await expectPressed(["Keep", "Reject"]);

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
    await expectPressed(["Keep", "Keep", "Reject"]);
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
    await expectDecisions({
      "a/one.jpg": "keep",
      "a/three.webp": "reject",
      "a/two.jpg": "reject",
      "b/<b>one.jpg": "reject",
    });
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
    await expectCount(".name b", 0);
  });

  test("shows the differences and the suggested photo with its reason", async () => {
    await page
      .getByText("Suggested keeper: most pixels (480 × 320), has the time it was taken")
      .waitFor();
    // of the two other photos: size, resolution and time; size, time and format
    await expectCount("dd.differs", 6);
    await expectCount(".photo:nth-child(1) dd.differs", 0);
  });

  test("shows the similarity of each pair", async () => {
    await expect
      .poll(() => page.locator(".similarity").allTextContents())
      .toEqual([
        "Selected",
        expect.stringMatching(
          /^Similarity to the selected photo: (equal hash|hash differs in \d bits?)$/,
        ),
        expect.stringMatching(
          /^Similarity to the selected photo: (equal hash|hash differs in \d bits?)$/,
        ),
      ]);
    await page.keyboard.press("ArrowRight");
    await page.getByText("Selected; similarity to the suggested keeper").waitFor();
    await page.getByText("Similarity of each pair").click();
    // the browser reports the opening of <details> later than the click
    await expectCount("#pair-table tbody td", 3);
  });

  test("rejects all identical copies after a confirmation", async () => {
    addCopies(set, 3);
    await page.reload();
    await page.getByRole("button", { name: "Reject identical copies" }).click();
    await page.getByRole("dialog").getByText("2 undecided photos are byte-identical").waitFor();
    await page.getByRole("button", { name: "Reject the copies" }).click();
    await shows("2 copies rejected.");
    await expectDecisions({ "copy-00001.jpg": "reject" });
  });

  test("stays usable with a group of 10 000 photos and 100 000 groups", async () => {
    addCopies(set, 10_000);
    addGroups(set, 100_000);
    await page.reload();
    await page.getByLabel("Group", { exact: true }).fill("3");
    await page.keyboard.press("Enter");
    await page.getByText("Group 3 of 100,003, 10,000 photos").waitFor();
    await page.getByText("Photos 1 to 60 of 10,000").waitFor();
    await expectCount(".photo", 60);
    await page.getByRole("button", { name: "Next photos" }).click();
    await page.getByText("Photos 61 to 120 of 10,000").waitFor();
    await page.keyboard.press("ArrowLeft");
    await page.getByText("Photos 1 to 60 of 10,000").waitFor();
    await page.locator(".photo:nth-child(60).chosen").waitFor();
    const startedAt = performance.now();
    for (const key of ["k", "ArrowLeft", "r"]) await page.keyboard.press(key);
    await shows("copy-00058.jpg: rejected");
    expect(performance.now() - startedAt).toBeLessThan(10_000);
    await page.keyboard.press("a");
    await shows("Suggestion accepted");
    await page.getByText("10,000 of 210,005 photos decided").waitFor();
    await page.keyboard.press("u");
    await page.getByText("Group 4 of 100,003").waitFor();
    await page.getByLabel("Group", { exact: true }).fill("100003");
    await page.keyboard.press("Enter");
    await page.getByText("Group 100,003 of 100,003").waitFor();
    await page.keyboard.press("u");
    await page.getByText("Group 1 of 100,003").waitFor();
    // the files of the added groups do not exist
    complaints.splice(0, complaints.length, ...complaints.filter((text) => !text.includes("404")));
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
        // keys apply to the page again only once the dialog is closed
        await expectCount("dialog[open]", 0);
      }
    });
  }

  test("fits a narrow window", async () => {
    await page.setViewportSize({ width: 360, height: 700 });
    await expect
      .poll(() => page.evaluate("document.documentElement.scrollWidth"))
      .toBeLessThanOrEqual(360);
    const table = "getComputedStyle(document.querySelector('#pair-table')).backgroundAttachment";
    expect(await page.evaluate(table)).toBe("local, local, scroll, scroll");
  });
});
