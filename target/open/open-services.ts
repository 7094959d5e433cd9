import type { PayloadFormat } from "../../contract/bench-endpoint.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { type EndpointName, hasEmbedApi } from "../../contract/environment.ts";
import type { Modality, ModelTower } from "../../contract/model-spec.ts";
import {
  parseTritonArgs,
  type RequiredHeader,
  requiredHeaders,
  tritonCommandOf,
} from "../../contract/triton-flags.ts";
import { UserError } from "../../contract/user-error.ts";
import { reason } from "../requests/http-client.ts";
import { modelFor } from "../requests/prepare.ts";
import type { TargetEndpoint } from "../requests/target-endpoint.ts";
import { serverVersion } from "../service/server-version.ts";
import {
  type EndpointTarget,
  endpointsOf,
  type RunningServices,
  type TargetService,
} from "../service/target-service.ts";
import type { Software } from "../subject/subject.ts";
import type { OpenTarget } from "./open-target.ts";

/** What every kind of target needs to be opened. */
export interface OpenOptions {
  /** Measured tower. */
  readonly tower: ModelTower;
  readonly signal: AbortSignal;
  /** Called with a description of each phase, for progress. */
  readonly onPhase: (text: string) => void;
}

const timeoutMs = 30_000;

/** Access to services, and the subject that the record describes. */
interface ServicesSubject {
  readonly target: OpenTarget["target"];
  readonly reach: (
    service: TargetService,
  ) => Pick<TargetEndpoint, "metrics" | "pids" | "apiKey" | "controlHeader" | "precision">;
  readonly environments: () => OpenTarget["subject"]["environments"];
  /** Versions of a service's libraries. */
  readonly software?: (service: TargetService) => Promise<Software | undefined>;
  readonly driver?: string;
  readonly gpu?: OpenTarget["subject"]["gpu"];
  readonly price?: OpenTarget["subject"]["price"];
  readonly readGpus?: OpenTarget["readGpus"];
  readonly notes: readonly string[];
}

/**
 * Opens the endpoints of running services.
 *
 * @param endpoints - Endpoints to open; if absent, all.
 */
export async function openServices(
  { services, close }: RunningServices,
  { spec, modality }: ModelTower,
  endpoints: readonly EndpointName[] | undefined,
  { target, reach, environments, software, driver, gpu, price, readGpus, notes }: ServicesSubject,
): Promise<OpenTarget> {
  const targets: TargetEndpoint[] = [];
  const servers: OpenTarget["subject"]["servers"] = [];
  for (const service of services) {
    const { name } = service.workload.service;
    const selected = endpointsOf(service, modality).filter(
      (target) => target.spec.name === spec.name && isSelected(target.endpointName, endpoints),
    );
    if (selected.length === 0) continue;
    const controlUrl = service.targets.find(
      ({ endpoint }) => endpoint.protocol === "oip-http",
    )?.url;
    for (const target of selected) {
      await requireLive(service, target);
      targets.push({
        environment: service.environment,
        service: name,
        endpoint: target.endpointName,
        url: target.url,
        spec: target.spec,
        modality,
        model: target.model,
        ...jpegKindOf(service, modality),
        payloads: await payloadsOf(service, target, modality),
        controlUrl,
        ...reach(service),
      });
    }
    servers.push({
      service: name,
      ...nameAndVersion(await serverVersion(service)),
      software: await software?.(service),
    });
  }
  return {
    target,
    targets,
    subject: {
      // computed when the run ends, because it contains the duration
      get environments() {
        return environments();
      },
      servers,
      driver,
      gpu,
      price,
    },
    readGpus,
    notes,
    close,
  };
}

/** Returns whether an endpoint is among those to open; without `endpoints`, all are. */
export function isSelected(
  endpoint: EndpointName,
  endpoints: readonly EndpointName[] | undefined,
): boolean {
  return endpoints === undefined || endpoints.includes(endpoint);
}

/**
 * Header that the model control API of a Triton server requires.
 *
 * @param command - Command of its container.
 */
export function controlHeaderOf(
  command: readonly string[],
  key: string | undefined,
): RequiredHeader | undefined {
  const [program, ...args] = tritonCommandOf(command);
  if (program === undefined) return undefined;
  try {
    const headers = requiredHeaders(parseTritonArgs(args), "http-restricted-api", key);
    return headers["model-repository"];
  } catch {
    // tritonserver has options that the emulator does not support
    return undefined;
  }
}

/** Fails before anything is measured if an endpoint does not respond. */
async function requireLive(service: TargetService, target: EndpointTarget): Promise<void> {
  const { endpointName: endpoint, url } = target;
  const fault = hasEmbedApi(endpoint)
    ? await service.http
        .send(`${url}${embedPaths.healthz}`, { timeoutMs })
        .then(({ status }) => (status === 200 ? "" : `status ${status}`), reason)
    : (await service.transport(target).live({ timeoutMs }))
      ? ""
      : "start the server, or correct its address";
  if (fault !== "") {
    throw new UserError(`${service.environment}: ${endpoint} does not respond at ${url}: ${fault}`);
  }
}

/** `triton 2.51.0`, `clipstack embed API 0.1.0` */
function nameAndVersion(text: string | undefined): { name: string; version: string } {
  const [, name, version] = /^(.*) (\S+)$/.exec(text ?? "") ?? [];
  return { name: name ?? "unknown", version: version ?? "unknown" };
}

/** Returns the payload formats that a server accepts. A Triton server is asked which models for other image formats it has. */
async function payloadsOf(
  service: TargetService,
  target: EndpointTarget,
  modality: Modality,
): Promise<readonly PayloadFormat[]> {
  if (modality === "text") return ["text"];
  if (hasEmbedApi(target.endpointName)) return ["jpeg"];
  const { jpegKind } = service.workload.service;
  // the models of the other formats run on ONNX Runtime only, except DALI's
  if (target.endpointName.startsWith("trt-") && jpegKind === undefined) return ["fp32"];
  const found: PayloadFormat[] = [];
  for (const payload of payloadOrder) {
    if (target.endpointName.startsWith("trt-") && payload === "uint8") continue;
    const name = modelFor({ ...target, jpegKind }, payload);
    try {
      const transport = service.transport(target);
      if (name === target.model || (await transport.ready(name, { timeoutMs })))
        found.push(payload);
    } catch (error) {
      throw new UserError(`${target.endpointName}: ${reason(error)}`);
    }
  }
  return found;
}

function jpegKindOf(
  { workload }: TargetService,
  modality: Modality,
): Pick<TargetEndpoint, "jpegKind"> {
  const { jpegKind } = workload.service;
  return modality === "image" && jpegKind !== undefined ? { jpegKind } : {};
}

/** The default format first. */
const payloadOrder: readonly PayloadFormat[] = ["fp32", "uint8", "jpeg"];
