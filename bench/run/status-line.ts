export interface Output {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

const frameMs = 100;
const frames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/** A line that says what is under way. */
export interface StatusLine {
  /** On a terminal the line that moves; elsewhere a line, unless it differs from the last in numbers alone. */
  readonly show: (text: string) => void;
  /** Draw it again, with other counts. */
  readonly draw: () => void;
  /** A line that stays. */
  readonly print: (line: string) => void;
  /** Take the live line away. */
  readonly end: () => void;
}

/** @param counts - What goes into the parentheses after the live line, before the seconds. */
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
      // a phase that only counts is one line
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

/** `single-gpu: ` before what is about one environment. */
export function environmentPrefix(environment: string | undefined): string {
  return environment === undefined ? "" : `${environment}: `;
}
