import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

/** Path of Chromium on this machine; undefined if there is none. */
export const chromiumPath = [
  process.env.CLIPSTACK_CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((path) => path !== undefined && existsSync(path));

/** Script of axe-core. */
export const axe = readFileSync(
  createRequire(import.meta.url).resolve("axe-core/axe.min.js"),
  "utf8",
);

/** Violations of accessibility rules. Expressions for the page are text, because Node's types do not include the DOM. */
export const axeViolations = `
axe.run().then(({ violations }) =>
  violations.map(({ id, nodes }) => id + ": " + nodes[0].html + " " + nodes[0].failureSummary))`;
