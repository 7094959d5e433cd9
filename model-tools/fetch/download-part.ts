import { lstat, readFile, rm } from "node:fs/promises";
import { z } from "zod";
import { sizeOf } from "../files/publish-file.ts";
import { redactedUrl } from "./download-request.ts";

const partState = z.object({
  /** URL without its query, which holds the secret of a signed URL and changes. */
  url: z.string(),
  /** Value for `If-Range`: a strong entity tag or a date. */
  validator: z.string().optional(),
  total: z.int().optional(),
});
export type PartState = z.infer<typeof partState>;

/** Path of the state file, beside the part. */
export function partStatePath(part: string): string {
  return part.replace(/(\.part)?$/, ".json");
}

export async function readState(part: string): Promise<PartState | undefined> {
  try {
    return partState.parse(JSON.parse(await readFile(partStatePath(part), "utf8")));
  } catch {
    return undefined;
  }
}

/** Removes an interrupted download. */
export async function discardPart(part: string): Promise<void> {
  await Promise.all([rm(part, { force: true }), rm(partStatePath(part), { force: true })]);
}

/** Bytes of the part that can be resumed: those of the same file, as far as is known. */
export async function usableBytes(
  {
    part,
    bytes,
    sha256,
    url,
  }: {
    readonly part: string;
    readonly bytes?: number;
    readonly sha256?: string;
    readonly url: URL;
  },
  state: PartState | undefined,
): Promise<number> {
  const link = await lstat(part).catch(() => undefined);
  if (link?.isSymbolicLink()) await discardPart(part);
  const existing = (await sizeOf(part)) ?? 0;
  if (bytes !== undefined && existing > bytes) return 0;
  // the checksum is verified afterwards
  if (sha256 !== undefined) return existing;
  return state?.url === redactedUrl(url) && state.validator !== undefined ? existing : 0;
}
