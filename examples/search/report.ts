import { getSystemErrorMap } from "node:util";

/** Error that is printed as one line. `usage`: wrong usage or settings, exit code 2. `failed`: exit code 1. */
export class CommandError extends Error {
  constructor(
    readonly code: "usage" | "failed",
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Returns one line for an error: the system's description without code and path, or the first line of its message. */
export function reasonOf(error: unknown): string {
  const { errno, message } = error as { readonly errno?: number; readonly message?: string };
  const [, description] = getSystemErrorMap().get(errno ?? 0) ?? [];
  return description ?? (message ?? String(error)).split("\n")[0] ?? "";
}

/** Output of a long-running step on a terminal or into a log. */
export interface Progress {
  /** Replaces the status line, at most five times per second; in a log, a line every five seconds. */
  update(text: string): void;
  /** Prints a permanent line. */
  note(text: string): void;
}

export function openProgress(stream: NodeJS.WriteStream = process.stderr): Progress {
  const terminal = stream.isTTY === true;
  let shownAt = performance.now();
  return {
    update(text) {
      if (performance.now() - shownAt < (terminal ? 200 : 5_000)) return;
      shownAt = performance.now();
      stream.write(terminal ? `\r\x1b[2K${text.slice(0, stream.columns - 1)}\r` : `${text}\n`);
    },
    note: (text) => stream.write(`${terminal ? "\r\x1b[2K" : ""}${printable(text)}\n`),
  };
}

/** Escapes control characters: a file name may contain line breaks and escape sequences. */
export function printable(text: string): string {
  return text.replace(
    /\p{Cc}|[\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** `1 photo`, `2 photos`. */
export const counted = (count: number, one: string) => `${count} ${one}${count === 1 ? "" : "s"}`;

export const percent = (share: number) => `${(100 * share).toFixed(1).padStart(5)} %`;
