import { requireTower } from "../../contract/model-shapes.ts";
import type { Modality } from "../../contract/model-spec.ts";
import { UserError } from "../../contract/user-error.ts";
import type { ProtocolName } from "../../target/open/server.ts";
import type { ConformanceOptions } from "../../verify/conformance.ts";
import { apiKeyVariable } from "../cluster/deployed-environments.ts";
import { namedModel } from "../model/named-model.ts";
import { type Address, serversOf } from "../shared/endpoint-address.ts";

export { verifyServers } from "../../verify/conformance.ts";
export { endpointsOf } from "../shared/endpoint-address.ts";

/** Options of `verify` for servers of any kind. */
export interface ServerArguments {
  /** Servers, or addresses of the services of one environment that Terraform did not deploy. @default - none */
  readonly url?: readonly Address[];
  readonly protocol?: ProtocolName;
  readonly model?: string;
  readonly modality?: Modality;
}

/** Servers and towers to check; undefined if an environment is checked. */
export function checkedServers(
  environments: readonly string[],
  { url = [], model, modality, protocol }: ServerArguments,
): Pick<ConformanceOptions, "servers" | "spec" | "modalities"> | undefined {
  const servers = serversOf(url);
  if (servers === undefined) {
    if ((model ?? modality ?? protocol) === undefined) return undefined;
    throw new UserError("--model, --modality and --protocol require --url with a server");
  }
  if (environments.length > 0) {
    throw new UserError(
      "--url of a server requires no environment; of an endpoint it is NAME=ADDRESS",
    );
  }
  const spec = namedModel(model);
  if (modality !== undefined) requireTower(spec, modality);
  const apiKey = process.env[apiKeyVariable]?.trim() || undefined;
  return {
    spec,
    modalities: (["image", "text"] as const).filter(
      (one) => spec.towers[one] !== undefined && (modality ?? one) === one,
    ),
    servers: servers.map((address) => ({ kind: "server", url: address, protocol, apiKey })),
  };
}
