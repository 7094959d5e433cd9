import { posix } from "node:path";
import type { Inspection } from "../../artefact/docker-inspect.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import { requestedModel } from "../../contract/environment.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { modelRepositoryMount } from "../../contract/server/server-env.ts";
import type { ReferenceModel } from "../../target/reference/reference.ts";
import { blockResult, type DeclaredBlock } from "./declared-blocks.ts";

/** Volume name that ends in the first digits of a checksum known only to Terraform. */
const namedByChecksum = /^(?<prefix>[^$]*)\$\{substr\([^{}]+, 0, (?<digits>\d+)\)\}$/;

/**
 * Compares the model files of the deployed containers with the reference files, by the checksum in the name of their
 * volume: one result per deployed file, none for a folder of the host or a file of the image.
 */
export function checkWeights(
  environment: string,
  blocks: readonly DeclaredBlock[],
  inspection: Inspection,
  models: readonly ReferenceModel[],
): readonly CheckResult[] {
  return models.flatMap((model) => checkModel(environment, blocks, inspection, model));
}

function checkModel(
  environment: string,
  blocks: readonly DeclaredBlock[],
  inspection: Inspection,
  { spec, modality, file, subject: { sha256 } }: ReferenceModel,
): readonly CheckResult[] {
  if (!inspection.ok || sha256 === undefined) return [];
  const results = new Map<string, CheckResult>();
  for (const block of blocks) {
    const deployed = deployedChecksum(block, spec, modality, inspection);
    if (deployed === undefined || results.has(deployed)) continue;
    const same = sha256.startsWith(deployed);
    const message = same
      ? `the deployed model.onnx is the reference file, sha256 ${deployed}`
      : `the sha256 of the deployed model.onnx must start with ${sha256.slice(0, deployed.length)} as the reference file ${file}, got ${deployed}`;
    const outcome = same ? "pass" : "fail";
    results.set(deployed, blockResult(block, environment, "parity", outcome, message));
  }
  return [...results.values()];
}

/** First digits of the checksum of the mounted model file, if the volume name contains them. */
function deployedChecksum(
  { declared, service }: DeclaredBlock,
  { name: model }: ModelSpec,
  modality: Modality,
  inspection: Inspection & { readonly ok: true },
): string | undefined {
  if (!service?.models.includes(model)) return undefined;
  const target = posix.join(modelRepositoryMount, requestedModel(service, model, modality), "1");
  const volume = declared.volumes.find(({ container_path }) => container_path === target);
  const { prefix, digits } = namedByChecksum.exec(volume?.volume_name ?? "")?.groups ?? {};
  if (prefix === undefined) return undefined;
  const mounts = inspection.containers.get(declared.name)?.Mounts ?? [];
  const name = mounts.find(({ Destination }) => Destination === target)?.Name ?? "";
  const checksum = name.slice(prefix.length);
  const isChecksum = checksum.length === Number(digits) && /^[0-9a-f]+$/.test(checksum);
  return name.startsWith(prefix) && isChecksum ? checksum : undefined;
}
