/** What `read` gives; where it throws, its message and the usage, and exit code 2. */
export function wrongUsage<T>(usage: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`);
    process.exit(2);
  }
}

/** @throws {Error} one line */
export function wholeNumber(name: string, text: string, min: number): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= min && value <= Number.MAX_SAFE_INTEGER) return value;
  throw new Error(`--${name} must be a whole number, at least ${min}, got '${text}'`);
}
