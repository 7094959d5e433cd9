import type { DeclaredContainer } from "../../artefact/declared-container.ts";
import type { Workload } from "../../artefact/workload.ts";
import { embedPort, hostPorts, tritonPorts } from "../../contract/ports.ts";
import type { LaunchPort } from "./launch-spec-types.ts";

/** Services of the all-in-one image: port in the service's own image → port in the all-in-one image. */
export const servicePorts: Readonly<Record<string, ReadonlyMap<number, number>>> = {
  embed: new Map([[embedPort, hostPorts.embed]]),
  "triton-onnx": tritonServicePorts(hostPorts.tritonOnnx),
  "triton-trt": tritonServicePorts(hostPorts.tritonTrt),
};

function tritonServicePorts(ports: typeof hostPorts.tritonOnnx | typeof hostPorts.tritonTrt) {
  return new Map(
    (["http", "grpc", "metrics"] as const).map((name) => [tritonPorts[name], ports[name]]),
  );
}

/** Ports of a workload, as the all-in-one container publishes them. */
export function portsOf(
  { service }: Workload,
  declared: DeclaredContainer | undefined,
): readonly LaunchPort[] {
  return (declared?.ports ?? []).map(({ internal, external, ip }) => {
    const host = external ?? internal;
    const endpoint = service.endpoints.find(({ url }) => url.endsWith(`:${host}`));
    return {
      service: service.name,
      protocol: endpoint?.protocol ?? "tcp",
      container: servicePorts[service.name]?.get(internal) ?? internal,
      host,
      address: ip,
    };
  });
}
