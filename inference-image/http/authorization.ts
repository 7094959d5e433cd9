import { createHash, timingSafeEqual } from "node:crypto";

/** Checks `Authorization: Bearer …`, in a time that tells nothing of the key. */
export function bearerCheck(key: string): (header: string | undefined) => boolean {
  const expected = digestOf(key);
  return (header) => {
    const token = /^bearer +(\S+) *$/i.exec(header ?? "")?.[1];
    return timingSafeEqual(digestOf(token ?? ""), expected) && token !== undefined;
  };
}

/** Of equal length for all: neither is the key's length told. */
function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
