import { renderChecksPage } from "../verify/checks/registry.ts";
import type { RenderedFile } from "./rendered-file.ts";

/** `docs/checks.md`. */
export function checkFiles(): readonly RenderedFile[] {
  return [{ path: "docs/checks.md", text: renderChecksPage() }];
}
