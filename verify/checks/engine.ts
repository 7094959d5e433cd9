import type { CheckResult } from "../../bench/record/record.ts";
import { computesInFp16 } from "../../contract/fingerprint.ts";
import type { ModelConfig } from "../../contract/model-config.ts";
import { towerOf } from "../../contract/model-shapes.ts";
import { jsonOf } from "../../target/requests/http-client.ts";
import {
  type ServedModel,
  servedTowers,
  type TargetService,
} from "../../target/service/target-service.ts";
import type { Check, DeploymentUnderTest } from "./check.ts";
import { resultOf } from "./check-result.ts";

const timeoutMs = 30_000;

export const engineCheck: Check = {
  name: "engine",
  question: "Does each TensorRT engine have the size that its precision implies?",
  only: "deployed",
  sendsRequests: true,
  kinds: ["triton"],
  async runService(service, { deployment }) {
    if (deployment === undefined || service.workload.service.backend !== "tensorrt") return [];
    const results: CheckResult[] = [];
    for (const tower of servedTowers(service)) {
      const { outcome, message, measured = {} } = await checkEngine(service, tower, deployment);
      results.push(
        resultOf(service, "engine", outcome, `${tower.model}: ${message}`, { measured }),
      );
    }
    return results;
  },
};

type Verdict = Pick<CheckResult, "outcome" | "message"> & Partial<Pick<CheckResult, "measured">>;

const notChecked = (reason: string): Verdict => ({
  outcome: "skip",
  message: `not checked: ${reason}`,
});

async function checkEngine(
  { http, targets, workload }: TargetService,
  { spec, modality, model }: ServedModel,
  { environment }: Pick<DeploymentUnderTest, "environment">,
): Promise<Verdict> {
  const { url } = targets.find(({ endpoint }) => endpoint.protocol === "oip-http") ?? {};
  if (url === undefined) return notChecked("the server has no HTTP endpoint");
  const response = await http.send(`${url}/v2/models/${model}/config`, { timeoutMs });
  if (response.status !== 200) {
    return notChecked(`its configuration cannot be read: status ${response.status}`);
  }
  const config = jsonOf(response) as ModelConfig;
  const { parameters } =
    config.optimization?.execution_accelerators?.gpu_execution_accelerator?.find(
      ({ name }) => name === "tensorrt",
    ) ?? {};
  if (parameters === undefined) return notChecked("TensorRT does not run it");
  const { trt_engine_cache_path: folder, trt_engine_cache_prefix: prefix } = parameters;
  if (folder === undefined || prefix === undefined) return notChecked("it has no engine cache");
  if (workload.kind !== "container") {
    return notChecked("only the engine cache of a container can be read, not that of a pod");
  }
  const command = ["find", folder, "-maxdepth", "1", "-name", "*.engine", "-printf", "%s %f\\n"];
  const lines = await environment.runInContainer(workload.name, command);
  if (lines === undefined) return notChecked(`${folder} cannot be read in the container`);
  return judgeEngine(lines, {
    prefix,
    isFp16: computesInFp16(config),
    parameters: towerOf({ spec, modality }).millionParameters * 1e6,
  });
}

/** Limit in bytes per weight that separates FP16 (2 bytes) from FP32 (4 bytes); the code of an engine adds to both. */
const maxFp16Bytes = 3;
/** Below this, a part of the weights is outside the engine. */
const minBytes = 1.5;

/**
 * Compares the size of a model's engines with its parameters.
 *
 * @param lines - Size in bytes and name of each file.
 * @param expected.prefix - Start of the names of the model's engines; those of other weights and images have another.
 */
export function judgeEngine(
  lines: readonly string[],
  expected: {
    readonly prefix: string;
    readonly isFp16: boolean;
    readonly parameters: number;
  },
): Verdict {
  const { prefix, isFp16, parameters } = expected;
  // ONNX Runtime appends the hash of the graph, its number and the GPU: `<prefix>_<hash>_<n>_…_sm90.engine`
  const sizes = lines.flatMap((line) => {
    const [, size, name = ""] = /^(\d+) (.*)$/.exec(line) ?? [];
    return name.startsWith(`${prefix}_`) && /^\d/.test(name.slice(prefix.length + 1))
      ? [Number(size)]
      : [];
  });
  if (sizes.length === 0) return notChecked(`no engine ${prefix}_… is in its cache`);
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  const perParameter = bytes / parameters;
  const measured = { engineBytes: bytes, parameters, bytesPerParameter: perParameter };
  const megabytes = (count: number) => `${Math.round(count / 1e6)} MB`;
  const got = `${megabytes(bytes)}, ${perParameter.toFixed(1)} bytes per parameter`;
  const required = `${megabytes(parameters * (isFp16 ? 2 : 4))} (${isFp16 ? "FP16" : "FP32"})`;
  if (perParameter < minBytes) {
    return {
      ...notChecked(`the engine must have about ${required} for its precision to show, got ${got}`),
      measured,
    };
  }
  const ok = perParameter <= maxFp16Bytes === isFp16;
  const message = ok
    ? `the engine has ${got}, as expected about ${required}`
    : `the engine must have about ${required}, got ${got}: TensorRT computes in ${isFp16 ? "FP32" : "FP16"}`;
  return { outcome: ok ? "pass" : "fail", message, measured };
}
