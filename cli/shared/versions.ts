import { coerce, lt } from "semver";

/** Returns whether a version is older than another; suffixes such as `+dfsg1` do not count. Text that is not a version counts as not older. */
export function isOlder(version: string, than: string): boolean {
  const [left, right] = [version, than].map((text) => coerce(text.replace(/\b0+(?=\d)/g, ""))); // 19.03
  return left != null && right != null && lt(left, right);
}
