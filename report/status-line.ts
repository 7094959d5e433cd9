export interface Output {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

const frameMs = 100;
const frames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/** Progress display: an animated line on a terminal, plain lines elsewhere. */
export interface StatusLine {
  /** Sets the status. Without a terminal, prints it unless it differs from the previous one only in numbers. */
  readonly show: (text: string) => void;
  /** Redraws the status line with the current counts. */
  readonly draw: () => void;
  /** Prints a permanent line. */
  readonly print: (line: string) => void;
  /** Removes the status line. */
  readonly end: () => void;
}

/** @param counts - Text in the parentheses after the status, before the elapsed seconds. */
export function startStatusLine(output: Output, counts: () => string): StatusLine {
  return output.isTTY === true ? liveLine(output, counts) : plainLines(output);
}

function plainLines(output: Output): StatusLine {
  const print = (line: string): void => {
    output.write(`${line}\n`);
  };
  let last = "";
  return {
    print,
    draw() {},
    end() {},
    show(text) {
      // a phase that only counts up is printed once
      const phase = text.replaceAll(/\d+/g, "");
      if (phase !== last) print(text);
      last = phase;
    },
  };
}

function liveLine(output: Output, counts: () => string): StatusLine {
  const clear = "\r\u001b[K";
  const startedAt = performance.now();
  let current = "";
  let frame = 0;
  const draw = (): void => {
    const seconds = Math.round((performance.now() - startedAt) / 1_000);
    const mark = frames[frame++ % frames.length];
    const line = `${mark} ${current}  (${counts()}, ${seconds} s)`;
    output.write(`${clear}${line.slice(0, Math.max(20, (output.columns || 80) - 1))}`);
  };
  const timer = setInterval(draw, frameMs);
  timer.unref();
  return {
    draw,
    print(line) {
      output.write(`${clear}${line}\n`);
    },
    end() {
      clearInterval(timer);
      output.write(clear);
    },
    show(text) {
      current = text;
    },
  };
}

/** Prefix of a status line: `single-gpu: `. */
export function environmentPrefix(environment: string | undefined): string {
  return environment === undefined ? "" : `${environment}: `;
}
