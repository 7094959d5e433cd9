import { UserError } from "../../contract/user-error.ts";
import { openFolderStore } from "./folder-store.ts";
import type { Store } from "./store.ts";

/**
 * Opens a folder or `s3://bucket[/prefix]`.
 *
 * @param patienceSeconds - Time for which a call to an unavailable or throttling bucket is retried.
 * @throws {UserError} if the address is neither
 */
export async function openStore(address: string, patienceSeconds = 600): Promise<Store> {
  if (!/^[a-z0-9]+:\/\//i.test(address)) return openFolderStore(address);
  const [, bucket, prefix = ""] =
    /^s3:\/\/([a-z0-9][a-z0-9.-]+)(?:\/(.*?))?\/?$/.exec(address) ?? [];
  if (bucket === undefined) {
    throw new UserError(`a location must be a folder or s3://bucket/prefix, got '${address}'`);
  }
  const { openS3Store } = await import("./s3-store.ts");
  return openS3Store({ bucket, prefix, patienceSeconds });
}
