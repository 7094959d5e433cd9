import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sidebar } from "./site.ts";

/** Builds the documentation site, which fails at a dead link, and opens its pages in Chromium as on a phone. */

const root = fileURLToPath(new URL("../", import.meta.url));
const dist = join(root, "docs/.vitepress/dist");
const executablePath = process.env.CLIPSTACK_CHROMIUM ?? "/usr/bin/chromium";
const mediaTypes: Readonly<Record<string, string>> = {
  ".html": "text/html",
  ".css": "text/css",
  ".js": "text/javascript",
  ".svg": "image/svg+xml",
};
const paths = sidebar().flatMap(({ items }) => items.map(({ link }) => link));

beforeAll(() => {
  execFileSync("npm", ["run", "docs:build"], { cwd: root, stdio: "pipe" });
});

test("every page of llms.txt is a Markdown file of the site", () => {
  const text = readFileSync(join(dist, "llms.txt"), "utf8");
  const pages = [...text.matchAll(/\]\(([^)]+)\)/g)].map(([, path = ""]) => path);
  expect(pages.length).toBeGreaterThan(40);
  expect(pages.filter((path) => !existsSync(join(dist, path)))).toEqual([]);
});

describe.skipIf(!existsSync(executablePath))("in Chromium, 390 pixels wide", () => {
  let server: Server;
  let browser: Browser;
  let page: Page;
  let url: string;

  beforeAll(async () => {
    server = createServer(({ url: path = "" }, response) => {
      const [name = ""] = decodeURI(path).split("?");
      const file = [name, `${name}.html`, `${name}index.html`]
        .map((each) => join(dist, each))
        .find((each) => extname(each) !== "" && existsSync(each));
      if (file === undefined) return void response.writeHead(404).end();
      response.writeHead(200, { "content-type": mediaTypes[extname(file)] ?? "image/png" });
      response.end(readFileSync(file));
    }).listen(0, "127.0.0.1");
    url = await new Promise((resolve) => {
      server.once("listening", () =>
        resolve(`http://127.0.0.1:${(server.address() as AddressInfo).port}`),
      );
    });
    browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
    page = await browser.newPage({ viewport: { width: 390, height: 844 } });
    // prevents hangs only
    page.setDefaultTimeout(300_000);
  });
  afterAll(async () => {
    await browser?.close();
    server?.close();
  });

  test("no page of the sidebar is wider than the screen", async () => {
    const widths: Record<string, unknown> = {};
    for (const path of paths) {
      const response = await page.goto(`${url}${path}`);
      expect(response?.status(), path).toBe(200);
      widths[path] = await page.evaluate("document.documentElement.scrollWidth");
    }
    expect(widths).toEqual(Object.fromEntries(paths.map((path) => [path, 390])));
  });

  test("the search finds a setting and opens its page", async () => {
    await page.goto(`${url}/docs/`);
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByRole("searchbox").fill("maxQueueDelayMicroseconds");
    await page.getByRole("option").first().click();
    await page.waitForURL(/\/docs\/.*#/);
    expect(await page.textContent("main")).toContain("maxQueueDelayMicroseconds");
  });
});
