import { mkdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { embedPaths } from "../../contract/embed-api.ts";
import { dinov2Small } from "../../contract/models/dinov2-small.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import { writeTestRepository } from "../models/test-text-model.ts";
import type { RunningEmbedServer } from "./embed-server.ts";
import { axe, axeViolations, chromiumPath } from "./test-browser.ts";
import { startLoaded } from "./test-embed-server.ts";

/** The page of the embed server in a real browser. */

if (chromiumPath === undefined) {
  console.warn(
    "skipped: the page in a browser needs Chromium (CLIPSTACK_CHROMIUM, or /usr/bin/chromium)",
  );
}

const sample = (name: string) =>
  fileURLToPath(new URL(`../../model-tools/samples/${name}`, import.meta.url));
const names = ["sunset.jpg", "shell-alpha.png", "clouds.webp"];
const specs = [openclipVitB32, dinov2Small];

describe.skipIf(chromiumPath === undefined)("the page in Chromium", () => {
  let folder: string;
  let server: RunningEmbedServer;
  let url: string;
  let browser: Browser;
  let context: BrowserContext;
  let page: Page;
  const complaints: string[] = [];

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "clipstack-page-"));
    await writeTestRepository(folder, specs);
    server = await startLoaded({
      ...modelSettings(specs),
      MODEL_REPOSITORY: folder,
    });
    url = `http://127.0.0.1:${server.port}`;
    browser = await chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox"] });
  });
  afterAll(async () => {
    await browser?.close();
    await server?.stop();
    await rm(folder, { recursive: true });
  });

  beforeEach(async () => {
    context = await browser.newContext({ viewport: { width: 1000, height: 900 } });
    page = await context.newPage();
    complaints.length = 0;
    page.on("console", (message) => {
      if (message.type() === "error") complaints.push(message.text());
    });
    page.on("pageerror", (error) => complaints.push(error.message));
    await page.goto(url);
  });
  afterEach(async () => {
    const shots = process.env.CLIPSTACK_SCREENSHOTS;
    if (shots !== undefined) {
      mkdirSync(shots, { recursive: true });
      const name = expect.getState().currentTestName?.replace(/[^a-z0-9]+/gi, "-");
      await page.screenshot({ path: join(shots, `${name}.png`), fullPage: true });
    }
    await context.close();
  });

  const chooseImages = (...files: readonly string[]) =>
    page.getByLabel("files", { exact: true }).setInputFiles(files.map(sample));
  const message = (text: string) => page.getByRole("status").filter({ hasText: text }).waitFor();

  /** Names of the samples by their cosine to a text, highest first. */
  async function expectedOrder(text: string): Promise<readonly string[]> {
    const vectorOf = async (path: string, body: unknown) => {
      const response = await fetch(`${url}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      return ((await response.json()) as { embeddings: number[][] }).embeddings;
    };
    const files = names.map((name) => readFileSync(sample(name)).toString("base64"));
    const images = await vectorOf(embedPaths.embedBase64, { images: files });
    const [query] = await vectorOf(embedPaths.embedText, { texts: [text] });
    const score = (index: number) =>
      images[index]!.reduce((sum, value, at) => sum + value * query![at]!, 0);
    return names
      .map((name, index) => ({ name, score: score(index) }))
      .sort((a, b) => b.score - a.score)
      .map(({ name }) => name);
  }

  test("lists the models and their modalities", async () => {
    expect(await page.locator("#models tr").allInnerTexts()).toEqual([
      "model\timages\ttexts\twidth",
      "openclip-vit-b32\tyes\tyes\t512",
      "dinov2-small\tyes\tno\t384",
    ]);
    await page.getByText("State: ready").waitFor();
    expect(complaints).toEqual([]);
  });

  test("says what happens after a drop, and what to do next", async () => {
    await page.getByText("This server embeds each image and stores none.").waitFor();
    await chooseImages(names[0]!);
    await message("Choose several images to compare them, or search by text.");
    await chooseImages(...names);
    await message("The table shows the cosine of each pair");
    await page.setViewportSize({ width: 390, height: 844 });
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(390);
    expect(complaints).toEqual([]);
  });

  test("compares the chosen images", async () => {
    await chooseImages(...names);
    await message("3 images in");
    const cells = await page.locator("#result td").allTextContents();
    expect(cells.filter((cell) => cell === "1.0000")).toHaveLength(3);
    expect(complaints).toEqual([]);
  });

  test("ranks the images by their cosine to a text, with the keyboard", async () => {
    await chooseImages(...names);
    await message("3 images in");
    await page.getByLabel("Search the images by text").fill("a photo of a sunset");
    await page.keyboard.press("Enter");
    await message("3 images ranked by their cosine to “a photo of a sunset”");
    const captions = await page.locator("#result figcaption").allTextContents();
    expect(captions.map((caption) => caption.split(" ")[1])).toEqual(
      await expectedOrder("a photo of a sunset"),
    );
    const scores = captions.map((caption) => Number(caption.split(" ")[0]));
    expect(scores).toEqual([...scores].sort((a, b) => b - a));
    expect(complaints).toEqual([]);
  });

  test("embeds the images again with another model, and disables search without a text tower", async () => {
    await chooseImages(...names);
    await message("model openclip-vit-b32");
    await page.getByLabel("Model", { exact: true }).selectOption("dinov2-small");
    await message("3 images in");
    await message("model dinov2-small");
    expect(await page.getByRole("button", { name: "Search" }).isDisabled()).toBe(true);
    await page.getByText("The selected model has no text tower here").waitFor();
    expect(complaints).toEqual([]);
  });

  test("leaves out an image that cannot be decoded", async () => {
    const broken = { name: "broken.jpg", mimeType: "image/jpeg", buffer: Buffer.from("no image") };
    const files = names.map((name) => ({
      name,
      mimeType: `image/${name.endsWith("jpg") ? "jpeg" : name.split(".")[1]}`,
      buffer: readFileSync(sample(name)),
    }));
    await page.getByLabel("files", { exact: true }).setInputFiles([files[0]!, broken, files[1]!]);
    await message("2 images in");
    await message("1 skipped: broken.jpg image 1 is not a JPEG, PNG or WebP file");
  });

  test("is accessible, empty and with results", async () => {
    await page.evaluate(axe);
    expect(await page.evaluate(axeViolations)).toEqual([]);
    await chooseImages(...names);
    await message("3 images in");
    expect(await page.evaluate(axeViolations)).toEqual([]);
    await page.getByLabel("Search the images by text").fill("clouds");
    await page.getByRole("button", { name: "Search" }).click();
    await message("3 images ranked");
    expect(await page.evaluate(axeViolations)).toEqual([]);
  });
});
