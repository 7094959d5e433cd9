import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { FastifyBaseLogger } from "fastify";

/** Time between two reads of watched files, in milliseconds. */
const intervalMs = 2_000;

/** What the content of watched files is used for. */
export type FilePurpose = "keys" | "certificate";

export interface WatchedFilesOptions<Content> {
  readonly purpose: FilePurpose;
  readonly paths: readonly string[];
  readonly read: () => Promise<Content>;
}

interface Use<Content> {
  readonly apply: (content: Content) => void;
  readonly onState: (purpose: FilePurpose, isValid: boolean) => void;
  readonly log: FastifyBaseLogger;
}

/**
 * Files that are read again when their content changes. The content is compared, because neither a host's files in a container nor a
 * Secret's, which Kubernetes replaces through a symbolic link, reliably cause file system events.
 */
export class WatchedFiles<Content> {
  /** Digest of the content that is applied, or known to be invalid. */
  #digest: string;
  /** Digest of new content that was invalid once: another process may still be writing it. */
  #invalid: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #use: Use<Content> | undefined;

  private constructor(
    private readonly options: WatchedFilesOptions<Content>,
    digest: string,
    readonly content: Content,
  ) {
    this.#digest = digest;
  }

  static async open<Content>(
    options: WatchedFilesOptions<Content>,
  ): Promise<WatchedFiles<Content>> {
    // the digest first: a change between the two reads is then found by the next check
    const digest = await digestOf(options.paths);
    return new WatchedFiles(options, digest, await options.read());
  }

  /** Applies changed content until {@link close}; after invalid content, the previous one stays in use. */
  watch(use: Use<Content>): void {
    this.#use = use;
    use.onState(this.options.purpose, true);
    const check = async () => {
      if ((await digestOf(this.options.paths)) !== this.#digest) await this.#reload(use);
      if (this.#timer !== undefined) this.#timer = setTimeout(check, intervalMs).unref();
    };
    this.#timer = setTimeout(check, intervalMs).unref();
  }

  /** Reads the files at once, also if their content is unchanged, and logs the result. */
  async reload(): Promise<void> {
    if (this.#use === undefined) return;
    this.#invalid = await digestOf(this.options.paths);
    await this.#reload(this.#use);
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  async #reload({ apply, onState, log }: Use<Content>): Promise<void> {
    const { purpose, paths, read } = this.options;
    const digest = await digestOf(paths);
    try {
      apply(await read());
    } catch (error) {
      const isNew = digest !== this.#invalid;
      this.#invalid = digest;
      if (isNew) return;
      this.#digest = digest;
      onState(purpose, false);
      log.error(`${purpose} not reloaded: ${(error as Error).message}`);
      return;
    }
    this.#digest = digest;
    this.#invalid = undefined;
    onState(purpose, true);
    log.info(`${purpose} reloaded`);
  }
}

/** Digest of the content of all files; of an unreadable file, of the reason. */
async function digestOf(paths: readonly string[]): Promise<string> {
  const hash = createHash("sha256");
  for (const path of paths) {
    const content = await readFile(path).catch((error: NodeJS.ErrnoException) => `${error.code}`);
    hash.update(createHash("sha256").update(content).digest());
  }
  return hash.digest("hex");
}
