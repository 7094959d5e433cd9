/** Output of a long-running step on a terminal or into a log. */
export interface Progress {
  /** Replaces the status line, at most five times per second; in a log, a line every five seconds. */
  update(text: string): void;
  /** Prints a permanent line. */
  note(text: string): void;
  /** Removes the status line. */
  end(): void;
}

export function openProgress(stream: NodeJS.WriteStream = process.stderr): Progress {
  const terminal = stream.isTTY === true;
  const intervalMs = terminal ? 200 : 5_000;
  let shownAt = performance.now();
  const clear = () => terminal && stream.write("\r\x1b[2K");
  return {
    update(text) {
      if (performance.now() - shownAt < intervalMs) return;
      shownAt = performance.now();
      clear();
      stream.write(terminal ? text.slice(0, (stream.columns ?? 80) - 1) : `${text}\n`);
    },
    note(text) {
      clear();
      stream.write(`${printable(text)}\n`);
    },
    end: clear,
  };
}

/** Escapes control characters: a file name may contain line breaks and escape sequences. */
export function printable(text: string): string {
  return text.replace(
    /\p{Cc}|[\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

export const percent = (share: number) => `${(100 * share).toFixed(1).padStart(5)} %`;
