import { setTimeout as sleep } from "node:timers/promises";
import { readEnvironment } from "../../artefact/artefact.ts";
import type { TunableKind } from "../../contract/deployed-model-config.ts";
import type { EndpointName } from "../../contract/environment.ts";
import {
  imageTowerOf,
  normalisedImage,
  textTowerOf,
  tokenIds,
} from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { elementArrays, elementCount } from "../../contract/tensor.ts";
import { kindModality, tritonModelName } from "../../contract/triton-models.ts";
import { countCodes, isGood } from "../../target/load/samples.ts";
import { startLoad } from "../../target/load/start-load.ts";
import { readSamples } from "../../target/reference/reference.ts";
import type { LoadItem } from "../../target/requests/load-items.ts";
import { prepareRequests } from "../../target/requests/prepare.ts";
import type { NetworkAccess } from "../../target/service/deployed-environment.ts";
import { apiKeyVariable, reachOf } from "../cluster/deployed-environments.ts";
import { environmentFile } from "../shared/artefact.ts";

/** Where requests for a model go: an environment, or the addresses of a Triton server and of its gateway. */
export interface ProbedServers {
  readonly environment?: string;
  readonly url?: string;
  readonly gateway?: string;
}

/** Requests that were sent to one server during a deployment. */
export interface ProbeResult {
  readonly target: string;
  readonly probes: number;
  readonly failed: number;
  /** Number of failed requests by code. */
  readonly failures: Readonly<Record<string, number>>;
  readonly slowestMs: number;
}

interface ProbeTarget {
  readonly name: string;
  readonly endpoint: EndpointName;
  readonly url: string;
  readonly apiKey?: string | undefined;
}

const load = { kind: "open loop", arrivals: "constant", ratePerSecond: 5, seed: 0 } as const;
/** Maximum number of outstanding requests per server. A request beyond it counts as failed. */
const openLimit = 100;
/** Time of the probes before and after the deployment. */
const marginMs = 2_000;

/**
 * Starts sending requests at a constant rate to the servers of a model: the gateways, and the Triton servers directly.
 *
 * @returns Function that ends them after a while and returns the results.
 */
export async function startProbes(
  spec: ModelSpec,
  modelKind: TunableKind,
  servers: ProbedServers,
): Promise<{ stop(): Promise<readonly ProbeResult[]> }> {
  const { targets, access } = await targetsOf(spec, servers);
  const loads = await Promise.all(
    targets.map(async (target) => {
      const server = { ...target, spec, model: tritonModelName(spec, modelKind) };
      const format = { payload: payloadOf(modelKind, target), serialization: "binary" } as const;
      const requests = await prepareRequests(server, format, [itemOf(spec, modelKind)], 1);
      return { target: target.name, running: startLoad(requests, load, { openLimit }) };
    }),
  );
  await sleep(marginMs);
  return {
    async stop() {
      await sleep(marginMs);
      await Promise.all(loads.map(({ running }) => running.stop()));
      await access?.close();
      return loads.map(({ target, running: { samples } }) => ({
        target,
        probes: samples.length,
        failed: samples.filter((sample) => !isGood(sample)).length,
        failures: countCodes(samples),
        slowestMs: Math.round(Math.max(0, ...samples.map((it) => it.doneMs - it.dueMs))),
      }));
    },
  };
}

/** Result in one line. */
export function describeProbes({
  target,
  probes,
  failed,
  failures,
  slowestMs,
}: ProbeResult): string {
  const codes = Object.entries(failures).map(([code, count]) => `${code}: ${count}`);
  const reasons = codes.length === 0 ? "" : ` (${codes.join(", ")})`;
  return `${target}: ${probes} probes, ${failed} failed${reasons}, slowest ${slowestMs} ms`;
}

async function targetsOf(
  spec: ModelSpec,
  { environment: name, url, gateway }: ProbedServers,
): Promise<{ readonly targets: readonly ProbeTarget[]; readonly access?: NetworkAccess }> {
  const apiKey = process.env[apiKeyVariable]?.trim() || undefined;
  if (name === undefined) {
    const targets: ProbeTarget[] = [];
    if (gateway !== undefined)
      targets.push({ name: gateway, endpoint: "embed-http", url: gateway, apiKey });
    if (url !== undefined) targets.push({ name: url, endpoint: "onnx-http", url });
    return { targets };
  }
  const { file, displayPath } = environmentFile(name);
  const environment = readEnvironment(file, displayPath);
  const served = environment.services.filter(
    ({ models, kind, backend }) =>
      models.includes(spec.name) &&
      (kind === "triton" ? backend === "onnxruntime" : backend === "triton"),
  );
  const options = { portOffset: 0, signal: new AbortController().signal, onNotice: console.error };
  try {
    const access = await reachOf(environment, options);
    const targets = served.flatMap(({ name: service, kind, endpoints, authorization }) => {
      const [protocol, endpoint] =
        kind === "triton"
          ? (["oip-http", "onnx-http"] as const)
          : (["embed-http", "embed-http"] as const);
      const found = endpoints.find((each) => each.protocol === protocol);
      if (found === undefined) return [];
      if (authorization !== undefined && apiKey === undefined) {
        console.error(`${service} is not probed: set ${apiKeyVariable}`);
        return [];
      }
      const key = authorization === undefined ? undefined : apiKey;
      return [{ name: service, endpoint, url: access.url(found.url), apiKey: key }];
    });
    return { targets, access };
  } catch (error) {
    // the deployment does not depend on them
    console.error(`${name} is not probed: ${(error as Error).message}`);
    return { targets: [] };
  }
}

function payloadOf(modelKind: TunableKind, { endpoint }: ProbeTarget) {
  if (kindModality(modelKind) === "text") return "text";
  if (endpoint === "embed-http") return "jpeg";
  return modelKind === "u8" ? "uint8" : "fp32";
}

/** Any image or text of the model. */
function itemOf(spec: ModelSpec, modelKind: TunableKind): LoadItem {
  if (kindModality(modelKind) === "text") {
    const { dataType, dims } = tokenIds(textTowerOf(spec));
    const ids = new elementArrays[dataType as "INT64" | "INT32"](elementCount(dims));
    return { text: "a photo", ids };
  }
  const [image] = readSamples(1);
  const { dims } = normalisedImage(imageTowerOf(spec));
  return { ...image!, tensor: new Float32Array(elementCount(dims)) };
}
