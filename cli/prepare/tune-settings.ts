import type { RequestedEndpoint } from "../../bench/measure/choose-endpoints.ts";
import type { Settings, Variable } from "../../bench/tune/coordinate-search.ts";
import type { BenchEndpoint } from "../../contract/bench-endpoint.ts";
import { sendsImageFiles } from "../../contract/environment.ts";
import { serverEnv } from "../../contract/server/server-env.ts";
import type { ServerSettings } from "../../contract/server/server-settings.ts";
import { UserError } from "../../contract/user-error.ts";
import type { EnvironmentSettings } from "../../stacks/settings/settings.ts";

/** Environment and machine that the values to try depend on. */
export interface TunedHost {
  readonly cores: number;
  /** Maximum batch size of the measured model. */
  readonly maxBatch: number;
  /** Limit of the SLO: a longer queue delay cannot meet it. */
  readonly limitMs: number;
}

/** Environment on a Docker host, where a simulation has the same settings and cores as the deployment. */
type DockerEnvironment = Extract<EnvironmentSettings, { stack: "single-gpu" | "multi-gpu" }>;

/**
 * Returns the settings that govern the rate of an endpoint within an SLO, with the values to try.
 *
 * @throws {UserError} if a local simulation does not represent the environment.
 */
export function tunableSettings(
  environment: EnvironmentSettings,
  endpoint: BenchEndpoint["endpoint"],
  host: TunedHost,
): readonly Variable[] {
  const { name, stack } = environment;
  if (stack !== "single-gpu" && stack !== "multi-gpu") {
    throw new UserError(
      `environment must be of the stack single-gpu or multi-gpu, got '${name}' of ${stack}: the CPU limits of pods are not part of a simulation`,
    );
  }
  const { accelerator } = environment.settings;
  if (accelerator === "gpu") {
    throw new UserError(
      `${name} must have accelerator: cpu, got 'gpu': candidates are local simulations, which compute on the CPU; 'clipstack sweep queue-delay --target deployed' measures queue delays of a GPU`,
    );
  }
  return [
    ...serverVariables(environment, endpoint, host),
    ...tritonVariables(environment, endpoint, host),
  ];
}

function serverVariables(
  environment: DockerEnvironment,
  endpoint: BenchEndpoint["endpoint"],
  { cores, maxBatch, limitMs }: TunedHost,
): readonly Variable[] {
  if (!sendsImageFiles(endpoint)) return [];
  const { server = {} } = environment.settings.embed;
  const of = (
    setting: "modelInstances" | "maxBatchSize" | "maxQueueDelayMicroseconds" | "preprocessThreads",
    fallback: number,
    values: readonly number[],
  ) =>
    variableOf(`embed.server.${setting}`, (server as ServerSettings)[setting] ?? fallback, values);
  const { MAX_QUEUE_DELAY_MICROSECONDS: delay } = serverEnv.parse({});
  const decoding = of("preprocessThreads", 0, [Math.ceil(cores / 2), 2 * cores]);
  const batch = of("maxBatchSize", maxBatch, [
    ...new Set([16, 4, 1].map((share) => Math.max(1, Math.floor(maxBatch / share)))),
  ]);
  if (upstreamOf(environment, endpoint) !== undefined) return [batch, decoding];
  const instances = of(
    "modelInstances",
    1,
    [1, 2, 4].filter((count) => count <= cores),
  );
  const delays = [0, 10_000, 100_000].filter((us) => us / 1_000 < limitMs);
  return [instances, batch, of("maxQueueDelayMicroseconds", delay, delays), decoding];
}

function tritonVariables(
  environment: DockerEnvironment,
  endpoint: BenchEndpoint["endpoint"],
  { limitMs }: TunedHost,
): readonly Variable[] {
  const path = upstreamOf(environment, endpoint);
  if (path === undefined) return [];
  const { settings } = environment;
  const triton =
    path === "perGpu" && "perGpu" in settings ? settings.perGpu : settings[path as "tritonOnnx"];
  const delays = [0, 1_000, 5_000, 20_000].filter((us) => us / 1_000 < limitMs);
  return [
    variableOf(`${path}.maxQueueDelayMicroseconds`, triton.maxQueueDelayMicroseconds, delays),
  ];
}

/** Key of the Triton servers that execute the requests of an endpoint; undefined if the embed server does. */
function upstreamOf(
  { stack, settings }: DockerEnvironment,
  endpoint: BenchEndpoint["endpoint"],
): "tritonOnnx" | "tritonTrt" | "perGpu" | undefined {
  if (stack === "multi-gpu" && settings.topology === "per-gpu") return "perGpu";
  if (!sendsImageFiles(endpoint)) return endpoint.startsWith("trt") ? "tritonTrt" : "tritonOnnx";
  if (stack === "single-gpu" && settings.embed.backend === "onnxruntime") return undefined;
  return settings.embed.upstream === "triton-trt" ? "tritonTrt" : "tritonOnnx";
}

function variableOf(setting: string, current: number, values: readonly number[]): Variable {
  return { setting, current, values: values.filter((value) => value !== current) };
}

/** The embed API, because clients with images use it; without an embed server, the HTTP endpoint of a Triton server. */
export function defaultEndpoint({ stack, settings }: EnvironmentSettings): RequestedEndpoint {
  const found =
    stack !== "single-gpu" || settings.embed.enabled
      ? ({ endpoint: "embed-http", payload: "jpeg" } as const)
      : ({
          endpoint: settings.tritonOnnx.enabled ? "onnx-http" : "trt-http",
          payload: "fp32",
        } as const);
  return { ...found, serialization: "binary", byName: true };
}

/** Settings of `--vary`, by the last part of their names; all without the option. */
export function selected(
  variables: readonly Variable[],
  names: readonly string[] | undefined,
): readonly Variable[] {
  const nameOf = ({ setting }: Variable) => setting.split(".").at(-1) ?? "";
  const unknown = names?.find((name) => !variables.some((variable) => nameOf(variable) === name));
  if (unknown !== undefined) {
    const known = variables.map(nameOf).join(", ");
    throw new UserError(`--vary must be a list of ${known}, got '${unknown}'`);
  }
  return variables.filter(
    (variable) => variable.values.length > 0 && (names?.includes(nameOf(variable)) ?? true),
  );
}

/** Settings of `after` that differ from `before`. */
export function changesOf(before: Settings, after: Settings): Settings {
  return Object.fromEntries(
    Object.entries(after).filter(([setting, value]) => before[setting] !== value),
  );
}
