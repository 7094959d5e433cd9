import { shownName } from "./shown-name.ts";

/** Tells a person how far a step is: one line that is written over on a terminal, a line every few seconds elsewhere. */
export interface Progress {
  /** Shows the text when it is time for it. */
  update(text: () => string): void;
  /** A line that stays. Names in it are shown as {@link shownName} has them. */
  note(text: string): void;
  /** Removes the line that is written over. */
  end(): void;
}

const terminalIntervalMs = 200;
const lineIntervalMs = 5_000;

export function openProgress(stream: NodeJS.WriteStream = process.stderr): Progress {
  const terminal = stream.isTTY === true;
  const intervalMs = terminal ? terminalIntervalMs : lineIntervalMs;
  let shownAt = performance.now() - (terminal ? intervalMs : 0);
  let open = false;

  const clear = () => {
    if (open) stream.write("\r\x1b[2K");
    open = false;
  };

  return {
    update(text) {
      if (performance.now() - shownAt < intervalMs) return;
      shownAt = performance.now();
      clear();
      if (terminal) stream.write(text().slice(0, (stream.columns ?? 80) - 1));
      else stream.write(`${text()}\n`);
      open = terminal;
    },
    note(text) {
      clear();
      stream.write(`${shownName(text)}\n`);
    },
    end: clear,
  };
}

/** `42 s`, `3 min 5 s`, `2 h 10 min`. */
export function durationText(seconds: number): string {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3_600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3_600)} h ${Math.floor((whole % 3_600) / 60)} min`;
}
