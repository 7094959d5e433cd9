import type { ProtocolPath } from "../../inference-image/src/contract/environment.ts";
import { openGrpcTransport } from "../../inference-image/src/triton/grpc-transport.ts";
import { openHttpTransport } from "../../inference-image/src/triton/http-transport.ts";
import type { Transport } from "../../inference-image/src/triton/transport.ts";
import type { Workload } from "./artefact.ts";
import type { RunningInstance } from "./embedded.ts";
import { describe, type Target } from "./embedded-plan.ts";
import { type HttpClient, openHttpClient } from "./http-client.ts";
import type { CheckId, CheckResult } from "./record.ts";

/** One service of a running environment, with what the checks need to reach it. */
export interface ServiceUnderTest {
  readonly environment: string;
  readonly workload: Workload;
  readonly instances: readonly RunningInstance[];
  readonly targets: readonly Target[];
  readonly http: HttpClient;
  /** What the embed API asks for, where strangers can reach it. */
  readonly apiKey?: string;
  /** Another client, with connections of its own. */
  openHttp(): HttpClient;
  /** An Open Inference Protocol transport to a target; opened once, closed with {@link closeService}. */
  transport(target: Target, encoding?: "json" | "binary"): Transport;
  closeTransports(): Promise<void>;
}

export function openService(
  environment: string,
  workload: Workload,
  instances: readonly RunningInstance[],
  targets: readonly Target[],
  apiKey?: string,
): ServiceUnderTest {
  const origin = targets.find(({ endpoint }) => endpoint.protocol === "embed-http")?.url;
  const bearer = apiKey === undefined || origin === undefined ? undefined : { origin, key: apiKey };
  const openHttp = () => openHttpClient(undefined, bearer);
  const transports = new Map<string, Transport>();
  return {
    environment,
    workload,
    instances,
    targets,
    http: openHttp(),
    apiKey,
    openHttp,
    transport(target, encoding = "binary") {
      const url = target.url ?? "";
      const key = `${encoding} ${url}`;
      const known = transports.get(key);
      if (known !== undefined) return known;
      const opened =
        target.endpoint.protocol === "oip-grpc"
          ? openGrpcTransport({ target: url })
          : openHttpTransport({ url, encoding });
      transports.set(key, opened);
      return opened;
    },
    async closeTransports() {
      await Promise.all([...transports.values()].map((transport) => transport.close()));
      transports.clear();
    },
  };
}

/** A target where an embedding can be asked for, and that leads somewhere. */
export type PathTarget = Target & { readonly path: ProtocolPath; readonly url: string };

export function pathsOf(service: ServiceUnderTest): readonly PathTarget[] {
  return service.targets.flatMap((target) => {
    const { endpoint, url } = target;
    return endpoint.path === undefined || url === undefined
      ? []
      : [{ ...target, path: endpoint.path, url }];
  });
}

/** A result of this service, with what every result carries. */
export function resultOf(
  service: ServiceUnderTest,
  id: CheckId,
  outcome: CheckResult["outcome"],
  message: string,
  more: Partial<Pick<CheckResult, "path" | "measured" | "images">> = {},
): CheckResult {
  return {
    id,
    environment: service.environment,
    service: service.workload.service.name,
    resource: describe(service.workload),
    outcome,
    message,
    measured: {},
    ...more,
  };
}
