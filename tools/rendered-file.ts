/** File written by `npm run render` only. */
export interface RenderedFile {
  /** Relative to the repository root, with slashes. */
  readonly path: string;
  /** Complete content. */
  readonly text: string;
}
