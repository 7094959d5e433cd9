import { isAbsolute, relative } from "node:path";
import { UserError } from "../../contract/user-error.ts";

/** Path relative to the working directory; unchanged if it is outside. */
export function displayPath(path: string): string {
  const inside = relative("", path);
  return inside.startsWith("..") || isAbsolute(inside) ? path : inside;
}

/** Converts file errors to user errors. */
export async function ofFiles<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw new UserError((error as Error).message.replace(/^\[\w+\] /, ""), { cause: error });
  }
}
