import { resolve } from "node:path";
import { type Command, InvalidArgumentError } from "commander";
import { startStatusLine } from "../../bench/run/status-line.ts";
import { UserError } from "../../contract/user-error.ts";
import type { DownloadProgress } from "../../model-tools/download.ts";
import { redactedUrl } from "../../model-tools/download-request.ts";
import { repositoryModel } from "../../model-tools/generate.ts";
import { modelInfo } from "../../model-tools/model-info.ts";
import {
  hub,
  type LockedModel,
  lockedUrl,
  readModelLock,
  repositoryLock,
  writeModelLock,
} from "../../model-tools/model-lock.ts";
import { type Environment, openProxyDispatcher } from "../../model-tools/proxy-dispatcher.ts";
import { FolderError } from "../../model-tools/publish-file.ts";
import { isPulled, type PulledModel, pullModel, type WantedModel } from "../../model-tools/pull.ts";
import {
  megabytes,
  ofFiles,
  requireNoFolder,
  requireReplaceable,
  shownCosine,
  shownPath,
} from "./model-output.ts";

export interface PullArguments {
  readonly output?: string;
  readonly lock?: string;
  readonly revision?: string;
  readonly sha256?: string;
  readonly updateLock?: true;
  readonly published?: true;
  readonly force?: true;
  readonly json?: true;
}

/** `clipstack model pull`: the published weights, from their hub. */
export function registerModelPull(model: Command): void {
  model
    .command("pull")
    .description(
      "fetch the published OpenCLIP ViT-B/32 image tower (laion2b_s34b_b79k, 352 MB) that model.lock.json names, check " +
        "it, and make it the model that the servers load",
    )
    .option("--output <file>", "default: the model repository of this checkout")
    .option("--lock <file>", "what to fetch, default: model_repository/model.lock.json")
    .option("--revision <commit>", "another commit of the hub's repository", commitOf)
    .option("--sha256 <hex>", "what the file of --revision must be", sha256Of)
    .option("--update-lock", "with --revision: write what came into the lock file")
    .option("--published", "keep the file as it was published: most are not what Triton takes here")
    .option("--force", "replace a file that something else than this project wrote")
    .option("--json", "print what was fetched as JSON")
    .addHelpText(
      "after",
      `
A pull that was interrupted goes on where it stopped. The file that is there stays until the new one is whole, is what the
lock says, and gives the same embeddings in the form that the servers take.

Environment:
  HF_ENDPOINT           a mirror of the hub, default: ${hub}
  HF_TOKEN              sent to the hub or its mirror, to no other host
  CLIPSTACK_MODEL_URL   whole address of the same file elsewhere, for example in your own store
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY
  NODE_EXTRA_CA_CERTS   a certificate authority of your own
  HF_HUB_OFFLINE=1      fetch nothing

Examples:
  $ npx clipstack model pull
  $ HF_ENDPOINT=https://hub.example npx clipstack model pull
  $ npx clipstack model pull --output weights/vit-b-32.onnx --json`,
    )
    .action(async (args: PullArguments) => pull(args, process.env));
}

async function pull(args: PullArguments, env: Environment): Promise<void> {
  const file = args.output === undefined ? repositoryModel : resolve(args.output);
  const lockPath = args.lock === undefined ? repositoryLock : resolve(args.lock);
  const lock = await ofFiles(readModelLock(lockPath));
  const model = wantedOf(lock, args);
  const form = args.published ? "published" : "standard";
  if (args.published && args.output === undefined) {
    throw new UserError(
      "--output must be given with --published: the repository is for the standard form",
    );
  }

  await requireNoFolder(file);
  if (!args.force) {
    if (await isPulled(file, model, form)) {
      await reportThere(args, file);
      return;
    }
    await requireReplaceable(file);
  }
  const { url, token } = sourceOf(model, env);
  const dispatcher = await ofFiles((async () => openProxyDispatcher(env))());
  const progress = startProgress(redactedUrl(url));
  let pulled: PulledModel;
  try {
    pulled = await pullModel({ model, url, token, file, form, dispatcher, ...progress.calls });
  } catch (error) {
    const { message } = error as Error;
    if (error instanceof FolderError) throw new UserError(message, { cause: error });
    if (!message.includes(": cannot be reached: ")) throw error;
    throw new Error(`${message}; for a mirror or a proxy see 'model pull --help'`, {
      cause: error,
    });
  } finally {
    progress.end();
    await dispatcher.destroy();
  }
  if (args.updateLock) {
    const { sha256, bytes } = pulled;
    await ofFiles(writeModelLock(lockPath, { ...lock, ...model, sha256, bytes, note: undefined }));
  }
  report(args, { file, lockPath, lock, model, pulled });
}

/** @throws {UserError} */
function wantedOf(lock: LockedModel, { revision, sha256, updateLock }: PullArguments): WantedModel {
  if (revision === undefined) {
    if (sha256 !== undefined) throw new UserError("--sha256 must be given with --revision");
    if (updateLock) throw new UserError("--update-lock must be given with --revision");
    return lock;
  }
  if (revision === lock.revision) return lock;
  if (sha256 === undefined && !updateLock) {
    throw new UserError(
      "--revision must be given with --sha256, or with --update-lock, which trusts what comes",
    );
  }
  const { weights, repository, path } = lock;
  return { weights, repository, path, revision, sha256 };
}

/** Download URL and token. @throws {UserError} */
function sourceOf(
  model: WantedModel,
  env: Environment,
): { readonly url: URL; readonly token?: string } {
  if (/^(1|on|yes|true)$/i.test(env.HF_HUB_OFFLINE ?? "")) {
    throw new UserError("HF_HUB_OFFLINE is set: nothing is fetched");
  }
  const endpoint = env.HF_ENDPOINT || hub;
  const base = httpUrl("HF_ENDPOINT", endpoint);
  const elsewhere = env.CLIPSTACK_MODEL_URL;
  const url = elsewhere ? httpUrl("CLIPSTACK_MODEL_URL", elsewhere) : lockedUrl(model, endpoint);
  const token = env.HF_TOKEN?.trim() || undefined;
  // a token that travels in the open is anybody's
  const safe = url.protocol === "https:" || /^(127\.0\.0\.1|localhost|\[::1\])$/.test(url.hostname);
  if (token === undefined || url.origin !== base.origin || !safe) return { url };
  return { url, token };
}

/** Error without the value, which may contain a password. */
function httpUrl(name: string, value: string): URL {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new UserError(`${name} must be http://… or https://…`);
  }
  if (url.username !== "" || url.password !== "") {
    throw new UserError(`${name} must have no user and no password`);
  }
  return url;
}

async function reportThere(args: PullArguments, file: string): Promise<void> {
  const info = await modelInfo(file);
  if (args.json) console.log(JSON.stringify({ file: shownPath(file), ...info }, null, 2));
  else {
    const size = `${megabytes(info.bytes)} MB, sha256 ${info.sha256}`;
    console.log(`${shownPath(file)} exists: ${size}, weights ${info.weights}`);
  }
}

interface Pull {
  readonly file: string;
  readonly lockPath: string;
  readonly lock: LockedModel;
  readonly model: WantedModel;
  readonly pulled: PulledModel;
}

function report(args: PullArguments, { file, lockPath, lock, model, pulled }: Pull): void {
  const { info, sha256, bytes, agreement } = pulled;
  if (args.json) {
    const published = { sha256, bytes, licence: lock.licence };
    const value = { file: shownPath(file), ...info, published, resumed: pulled.resumed, agreement };
    console.log(JSON.stringify(value, null, 2));
    return;
  }
  console.log(`${shownPath(file)} written: ${megabytes(info.bytes)} MB, sha256 ${info.sha256}`);
  console.log(`Weights ${info.weights} (${lock.licence}) of ${info.origin}.`);
  const came = `${megabytes(bytes)} MB with sha256 ${sha256}`;
  console.log(
    model.sha256 === undefined
      ? `Trusted on first use: ${came}, without a checksum to compare.`
      : `Verified: ${came}.`,
  );
  if (args.updateLock) console.log(`${shownPath(lockPath)} says so from now on.`);
  if (agreement === undefined) return;
  const cosine = shownCosine(agreement.minCosine);
  console.log(
    `Made into the standard form (${info.parts?.join(", ")}): cosine to what came at least ${cosine}, on ${agreement.images} synthetic images.`,
  );
}

/** Progress on stderr, so that stdout is the result. */
function startProgress(what: string) {
  let latest = "";
  const line = startStatusLine(process.stderr, () => latest);
  line.show(`fetching ${what} …`);
  let first: { readonly at: number; readonly bytes: number } | undefined;
  return {
    end: line.end,
    calls: {
      onProgress(progress: DownloadProgress) {
        const now = performance.now();
        first ??= { at: now, bytes: progress.bytes };
        latest = progressLine(progress, progress.bytes - first.bytes, (now - first.at) / 1000);
      },
      onRetry: line.print,
      onChanging: () => line.show("all there; making it the model that the servers load …"),
    },
  };
}

/** `37 %  130 of 352 MB  12.3 MB/s  18 s left` */
export function progressLine(
  { bytes, total }: DownloadProgress,
  came: number,
  seconds: number,
): string {
  const rate = seconds > 0 ? came / seconds : 0;
  const speed = rate > 0 ? `  ${(rate / 1e6).toFixed(1)} MB/s` : "";
  if (total === undefined) return `${megabytes(bytes)} MB${speed}`;
  const percent = String(Math.floor((100 * bytes) / total)).padStart(3);
  const left = rate > 0 ? `  ${timeOf((total - bytes) / rate)} left` : "";
  return `${percent} %  ${megabytes(bytes)} of ${megabytes(total)} MB${speed}${left}`;
}

function timeOf(seconds: number): string {
  if (seconds < 100) return `${Math.ceil(seconds)} s`;
  return seconds < 6000 ? `${Math.ceil(seconds / 60)} min` : `${Math.ceil(seconds / 3600)} h`;
}

function commitOf(text: string): string {
  if (!/^[0-9a-f]{40}$/.test(text)) {
    throw new InvalidArgumentError("It must be a commit, 40 hexadecimal digits.");
  }
  return text;
}

function sha256Of(text: string): string {
  if (!/^[0-9a-f]{64}$/i.test(text)) {
    throw new InvalidArgumentError("It must be 64 hexadecimal digits.");
  }
  return text.toLowerCase();
}
