import { rename } from "node:fs/promises";
import { join } from "node:path";
import { type DownloadProgress, downloadChecked } from "../../model-tools/fetch/download.ts";
import { redactedUrl } from "../../model-tools/fetch/download-request.ts";
import { openProxyDispatcher } from "../../model-tools/fetch/proxy-dispatcher.ts";
import { withFileLock } from "../../model-tools/fetch/pull-lock.ts";
import { externalLocations } from "../../model-tools/files/external-data.ts";
import { sha256Of } from "../../model-tools/files/model-info.ts";
import { folderErrorOf, makeFolder, sizeOf } from "../../model-tools/files/publish-file.ts";
import {
  type CheckWeightsOptions,
  checkWeights,
  requireSha256,
  weightsPath,
} from "./check-weights.ts";
import { readArguments, UsageError } from "./role-arguments.ts";

export interface FetchWeightsOptions extends CheckWeightsOptions {
  /** URL of the file without user and password. Redirects are followed, but not from https to http. */
  readonly url: string;
  readonly maxBytes: number;
  /** Deadline of the whole download. */
  readonly timeoutSeconds: number;
}

/** Reads the arguments of `fetch-weights …`. Messages omit the URL, which may contain a secret. */
export function readFetchWeightsArguments(args: readonly string[]): FetchWeightsOptions {
  const {
    url,
    "max-bytes": maxBytes,
    "timeout-seconds": timeoutSeconds = "900",
    ...rest
  } = readArguments("fetch-weights", args, {
    required: ["url", "folder", "sha256", "max-bytes"],
    optional: ["timeout-seconds", "file"],
  });
  if (!URL.canParse(url) || !/^https?:\/\//.test(url)) {
    throw new UsageError("fetch-weights: --url must be http://… or https://…");
  }
  if (hasUser(new URL(url))) {
    throw new UsageError("fetch-weights: --url must have no user and no password");
  }
  // 19 digits: the maximum of a Kubernetes quantity
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

/** Four hours: the maximum start time of a pod in the chart. */
const maxTimeoutSeconds = 14_400;
const progressMs = 10_000;
/**
 * Downloads the weights into a folder and checks them as {@link checkWeights} does. An existing file with the right
 * checksum is kept. An interrupted download is resumed, also by another process; one process at a time.
 *
 * @param onMessage - Receives a one-line message about progress or a retry.
 * @param wait - Waits before a retry. @default a timer
 * @returns Description of the file, in one line.
 * @throws {Error} one line: the URL without its query, the rule and the value.
 */
export async function fetchWeights(
  { url, maxBytes, timeoutSeconds, ...options }: FetchWeightsOptions,
  onMessage: (line: string) => void = () => {},
  wait?: (ms: number) => Promise<void>,
): Promise<string> {
  const { folder, sha256 } = options;
  const file = weightsPath(options);
  if ((await sizeOf(file)) !== undefined && (await sha256Of(file)) === sha256) {
    return `already downloaded; ${await checkComplete(options)}`;
  }
  // a partial file per checksum, so that one of another file is never resumed
  const part = join(folder, `model.${sha256.slice(0, 12)}.onnx.part`);
  const deadline = new AbortController();
  const timer = setTimeout(() => {
    const rule = `must be downloaded within ${timeoutSeconds} s`;
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
        onProgress: progressMessages(onMessage),
        onRetry: onMessage,
      });
      await rename(part, file);
      const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
      return `downloaded in ${seconds} s; ${await checkComplete(options)}`;
    });
  } catch (error) {
    throw folderErrorOf(error, folder, (await sizeOf(part)) ?? 0);
  } finally {
    clearTimeout(timer);
    await dispatcher.destroy();
  }
}

/** Checks a downloaded file. @throws {Error} one line, also if the weights are in another file, which is not downloaded */
function checkComplete(options: CheckWeightsOptions): Promise<string> {
  const file = weightsPath(options);
  const [data] = file.endsWith(".onnx") ? externalLocations(file) : [];
  if (data === undefined) return checkWeights(options);
  throw new Error(
    `${file}: must contain its weights, because one file is downloaded, got external data '${data}'; a volume can have both files`,
  );
}

/** Formats progress, at most once per {@link progressMs}. */
function progressMessages(onMessage: (line: string) => void) {
  let reportedAt = performance.now();
  return ({ bytes, total }: DownloadProgress) => {
    if (performance.now() - reportedAt < progressMs) return;
    reportedAt = performance.now();
    const of = total === undefined ? "" : ` of ${Math.round(total / 1e6)}`;
    onMessage(`${Math.round(bytes / 1e6)}${of} MB downloaded`);
  };
}

function hasUser({ username, password }: URL): boolean {
  return username !== "" || password !== "";
}
