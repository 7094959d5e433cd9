import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { defineConfig } from "vitepress";
import { anchorOf } from "../markdown.ts";
import { isPage, repository, sidebar, sitePath, siteTarget } from "../site.ts";

/** `npm run docs:build` writes the site to `docs/.vitepress/dist`. `DOCS_BASE=/clipstack/` is the path below which it is served. */
export default defineConfig({
  title: "clipstack",
  description: "GPU inference infrastructure for image and text embeddings",
  base: process.env.DOCS_BASE ?? "/",
  srcDir: "..",
  cacheDir: "../node_modules/.cache/vitepress",
  srcExclude: [
    "AGENTS.md",
    ".github",
    "review/input",
    "bench/reports/*-*.md",
    "**/{dist,cdktf.out}",
  ],
  rewrites: (path) => sitePath(path),
  lastUpdated: false,
  markdown: {
    anchor: { slugify: anchorOf },
    config: (markdown) => {
      markdown.core.ruler.push("site-targets", ({ tokens, env }) => {
        for (const token of tokens.flatMap(({ children }) => children ?? [])) {
          // otherwise Vue evaluates {{ }} in code
          if (token.type === "code_inline") token.attrSet("v-pre", "");
          if (token.type !== "link_open") continue;
          const page = env.relativePath.replace(/(^|\/)index\.md$/, "$1README.md");
          token.attrSet("href", siteTarget(page, token.attrGet("href") ?? ""));
        }
      });
    },
  },
  themeConfig: {
    nav: [
      { text: "Documentation", link: "/docs/" },
      { text: "Changes", link: "/CHANGELOG" },
    ],
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: "local" },
    socialLinks: [{ icon: "github", link: repository }],
    footer: { message: "Apache-2.0" },
  },
  buildEnd({ outDir, pages, srcDir }) {
    // llms.txt names the Markdown files
    for (const file of ["llms.txt", ...pages.filter(isPage)]) {
      mkdirSync(dirname(join(outDir, file)), { recursive: true });
      copyFileSync(join(srcDir, file), join(outDir, file));
    }
  },
});
