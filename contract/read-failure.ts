const reasons: Readonly<Record<string, string>> = {
  ENOENT: "does not exist",
  ENOTDIR: "does not exist",
  EISDIR: "is a folder",
  EACCES: "must be readable for this user",
};

/** Why a file or folder cannot be read, for the end of a line that names it. */
export function readFailure(error: unknown): string {
  const { code = "unknown error" } = error as NodeJS.ErrnoException;
  return reasons[code] ?? `cannot be read (${code})`;
}
