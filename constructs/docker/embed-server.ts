import { Construct } from "constructs";
import type { Container } from "#providers/docker/lib/container/index.js";
import { embedPaths } from "../../contract/embed-api.ts";
import type { Service } from "../../contract/environment.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { embedPort, tlsProxyContainerPorts } from "../../contract/ports.ts";
import { minKeyLength } from "../../contract/server/client-keys.ts";
import type { ServerEnvName } from "../../contract/server/server-env.ts";
import { serverSettings } from "../../contract/server/server-settings.ts";
import { limitsOf } from "../checks/container-limits.ts";
import { check } from "../checks/findings.ts";
import { exposure, memoryLimitMiB, port as portType } from "../checks/prop-types.ts";
import { checkedProps } from "../checks/props.ts";
import { addressOf, TerraformVariable } from "../terraform/cdktf.ts";
import { expression } from "../terraform/expression.ts";
import { nameInStack, objectName } from "../terraform/names.ts";
import {
  containerInit,
  environmentList,
  healthcheckOf,
  labels,
  plaintextLabels,
  tmpfs,
} from "./container-defaults.ts";
import type { EmbedAccess } from "./embed-access.ts";
import { type EmbedPlan, type EmbedServerProps, embedPlan, tmpMiB } from "./embed-plan.ts";
import { gpuRequest } from "./gpu-request.ts";
import { bindAddress } from "./host-plan.ts";
import { serverContainer } from "./server-container.ts";

/** Embed server in a container. */
export class EmbedServer extends Construct {
  /** Entry of the environment output. */
  readonly service: Service;
  /** Specs of the served models; the first is the default. */
  readonly models: readonly ModelSpec[];
  /** Underlying container. For anything the props do not cover, use `container.addOverride()`. */
  readonly container: Container;
  /** Bearer token required from clients if the port is published on all interfaces, without `keys`: `TF_VAR_<name>_api_key`. */
  readonly apiKey?: TerraformVariable;
  /** Who may reach the server, and how. */
  readonly access: EmbedAccess;
  /** Name, for one line about the stack. */
  readonly summary: string;

  constructor(scope: Construct, id: string, given: EmbedServerProps) {
    super(scope, id);

    const props = checkedProps(this, given, {
      port: portType.optional(),
      expose: exposure.optional(),
      memoryMiB: memoryLimitMiB.optional(),
      server: serverSettings.optional(),
    });
    const { host, image, port = embedPort, expose = "loopback" } = props;
    const name = nameInStack(this);
    const plan = embedPlan(props, name);
    this.models = plan.models;
    this.access = plan.access;
    this.summary = id;
    check(this, () => plan.findings);
    host.require(plan.use, this);
    if (plan.needsIpv6) host.network.ipv6 = true;
    const { keyInVariable, scheme, published } = plan.access;
    if (keyInVariable) this.apiKey = apiKeyVariable(this, name);

    const request = gpuRequest(plan.gpus);
    const { container } = serverContainer(this, host, {
      ...containerInit,
      ...limitsOf("embed", plan.memoryMiB, host.cores),
      image: image.imageId,
      labels: labels(this, name, plaintextLabels(published, scheme)),
      gpus: request.gpus,
      runtime: request.runtime,
      env: environmentList({ ...request.env, ...plan.env, ...accessSettings(plan, this.apiKey) }),
      tmpfs: tmpfs(tmpMiB),
      ports: [{ internal: embedPort, external: port, ip: bindAddress(published) }],
      volumes: [...plan.mounts],
      test: healthcheckOf(`${scheme}://127.0.0.1:${embedPort}${embedPaths.readyz}`),
      startSeconds: plan.startSeconds,
      graceSeconds: plan.graceSeconds,
    });
    this.container = container;

    const upstream = `${objectName(this)}:${embedPort}`;
    host.addRoutes(expose, [{ port: tlsProxyContainerPorts.https, upstream, protocol: "http" }]);
    const url = host.isProxied(expose)
      ? `https://${host.acme?.domain}`
      : `${scheme}://${host.clientAddress(expose)}:${port}`;
    this.service = {
      ...plan.service,
      resources: { container: addressOf(this.container) },
      endpoints: [
        { protocol: "embed-http", url, name: "embed-http" },
        { protocol: "metrics", url },
      ],
    };
  }
}

function apiKeyVariable(server: EmbedServer, service: string): TerraformVariable {
  const name = `${service.replaceAll("-", "_")}_api_key`;
  const variable = new TerraformVariable(server, "api-key", {
    type: "string",
    sensitive: true,
    nullable: false,
    description: `Bearer token of ${service}, whose port is public: TF_VAR_${name}, for example from 'openssl rand -hex 32'.`,
    validation: [
      {
        condition: expression(`length(var.${name}) >= ${minKeyLength}`),
        errorMessage: `The key must have at least ${minKeyLength} characters.`,
      },
    ],
  });
  variable.overrideLogicalId(name);
  return variable;
}

/** Settings of the authentication: without keys in a file, a port on the loopback interface requires no key. */
function accessSettings(
  { access }: EmbedPlan,
  apiKey: TerraformVariable | undefined,
): Partial<Record<ServerEnvName, string>> {
  if (apiKey !== undefined) return { API_KEY: apiKey.stringValue };
  return access.requiresKey ? {} : { ALLOW_ANONYMOUS: "true" };
}
