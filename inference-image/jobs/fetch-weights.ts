import { rename } from "node:fs/promises";
import { join } from "node:path";
import { type DownloadProgress, downloadChecked } from "../../model-tools/download.ts";
import { discardPart } from "../../model-tools/download-part.ts";
import { redactedUrl } from "../../model-tools/download-request.ts";
import { sha256Of } from "../../model-tools/model-info.ts";
import { openProxyDispatcher } from "../../model-tools/proxy-dispatcher.ts";
import { aboutFolder, makeFolder, sizeOf } from "../../model-tools/publish-file.ts";
import { withFileLock } from "../../model-tools/pull-lock.ts";
import {
  type CheckWeightsOptions,
  checkWeights,
  requireSha256,
  weightsFileName,
} from "./check-weights.ts";
import { readArguments, UsageError } from "./role-arguments.ts";

export interface FetchWeightsOptions extends CheckWeightsOptions {
  /** Where `model.onnx` is, without a user or a password. Redirects are followed, from https to https only. */
  readonly url: string;
  /** A longer file is refused. */
  readonly maxBytes: number;
  /** Until the file is there, whatever is sent meanwhile. */
  readonly timeoutSeconds: number;
}

/** Of `fetch-weights …`. What it is given as an address is never printed: a secret may be in it. @throws {UsageError} */
export function readFetchWeightsArguments(args: readonly string[]): FetchWeightsOptions {
  const {
    url,
    "max-bytes": maxBytes,
    "timeout-seconds": timeoutSeconds = "900",
    ...rest
  } = readArguments("fetch-weights", args, {
    required: ["url", "folder", "sha256", "max-bytes"],
    optional: ["timeout-seconds"],
  });
  if (!URL.canParse(url) || !/^https?:\/\//.test(url)) {
    throw new UsageError("fetch-weights: --url must be http://… or https://…");
  }
  if (hasUser(new URL(url))) {
    throw new UsageError("fetch-weights: --url must have no user and no password");
  }
  // 19 digits: the largest size that Kubernetes can say
  if (!/^[1-9]\d{0,18}$/.test(maxBytes)) {
    throw new UsageError(
      `fetch-weights: --max-bytes must be a whole number, 1 or more, got '${maxBytes}'`,
    );
  }
  if (!/^[1-9]\d*$/.test(timeoutSeconds) || Number(timeoutSeconds) > maxTimeoutSeconds) {
    throw new UsageError(
      `fetch-weights: --timeout-seconds must be a whole number, 1 to ${maxTimeoutSeconds}, got '${timeoutSeconds}'`,
    );
  }
  return {
    url,
    maxBytes: Number(maxBytes),
    timeoutSeconds: Number(timeoutSeconds),
    ...requireSha256("fetch-weights", rest),
  };
}

/** Four hours: as long as a pod of the chart may take to start. */
const maxTimeoutSeconds = 14_400;
/** Between two lines about how far it is. */
const progressMs = 10_000;
/**
 * Downloads the weights into a folder and checks them as {@link checkWeights} does. A file that is there and is the right one
 * is not fetched again. An interrupted download is resumed, also by another process; one process at a time.
 *
 * @param tell - Receives one line about the progress or a retry.
 * @param wait - Waits before a retry. @default the time passes
 * @returns Description of the file, in one line.
 * @throws {Error} one line: the address without its query, the rule and what came.
 */
export async function fetchWeights(
  { url, maxBytes, timeoutSeconds, ...options }: FetchWeightsOptions,
  tell: (line: string) => void = () => {},
  wait?: (ms: number) => Promise<void>,
): Promise<string> {
  const { folder, sha256 } = options;
  const file = join(folder, weightsFileName);
  if ((await sizeOf(file)) !== undefined && (await sha256Of(file)) === sha256) {
    return `it was there already; ${await checkWeights(options)}`;
  }
  // another file is another part: what is left of it is never taken for this one
  const part = join(folder, `model.${sha256.slice(0, 12)}.onnx.part`);
  const deadline = new AbortController();
  const timer = setTimeout(() => {
    const rule = `must be there within ${timeoutSeconds} s, and is not`;
    deadline.abort(new Error(`${redactedUrl(new URL(url))}: ${rule}`));
  }, timeoutSeconds * 1000);
  const dispatcher = openProxyDispatcher(process.env);
  try {
    await makeFolder(folder);
    return await withFileLock(`${part}-lock`, file, async () => {
      const startedAt = performance.now();
      await downloadChecked({
        url: new URL(url),
        part,
        sha256,
        maxBytes,
        dispatcher,
        signal: deadline.signal,
        wait,
        onProgress: progressTold(tell),
        onRetry: tell,
      });
      await rename(part, file);
      await discardPart(part);
      const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
      return `fetched in ${seconds} s; ${await checkWeights(options)}`;
    });
  } catch (error) {
    throw aboutFolder(error, folder, (await sizeOf(part)) ?? 0);
  } finally {
    clearTimeout(timer);
    await dispatcher.destroy();
  }
}

/** Every {@link progressMs} at most. */
function progressTold(tell: (line: string) => void) {
  let toldAt = performance.now();
  return ({ bytes, total }: DownloadProgress) => {
    if (performance.now() - toldAt < progressMs) return;
    toldAt = performance.now();
    const of = total === undefined ? "" : ` of ${Math.round(total / 1e6)}`;
    tell(`${Math.round(bytes / 1e6)}${of} MB fetched`);
  };
}

function hasUser({ username, password }: URL): boolean {
  return username !== "" || password !== "";
}
