import type { Command } from "commander";
import { readEnvironment } from "../../artefact/artefact.ts";
import { clusterAddress } from "../../artefact/cluster-address.ts";
import type { Environment, Service } from "../../contract/environment.ts";
import { podAppName, podObjectName } from "../../contract/pods.ts";
import { UserError } from "../../contract/user-error.ts";
import type { DrillTarget } from "../../verify/drills/snapshot.ts";
import { environmentFile } from "../shared/artefact.ts";
import { defaultEnvironment } from "../shared/default-environment.ts";

/** Options that select a cluster, a Deployment and its address. */
export interface TargetArguments {
  readonly kubeconfig?: string;
  readonly context?: string;
  readonly namespace?: string;
  readonly deployment?: string;
  readonly url?: string;
}

/** Adds the options of {@link TargetArguments}. */
export function addTargetOptions(command: Command): Command {
  return command
    .option("--kubeconfig <file>", "kubeconfig of the cluster (default: the environment's)")
    .option("--context <name>", "context of the kubeconfig (default: the environment's)")
    .option("--namespace <name>", "namespace (default: the environment's)")
    .option(
      "--deployment <name>",
      `Deployment (default: the environment's; without one, ${podObjectName("embed")})`,
    )
    .option(
      "--url <url>",
      "address of its Service (default: the environment's; without one, through the API server)",
    );
}

/** Returns the Deployment for a drill: that of a synthesized environment, or one on any cluster, selected by options. */
export function drillTarget(environment: string | undefined, args: TargetArguments): DrillTarget {
  const selected = args.context ?? args.kubeconfig ?? args.namespace;
  if (environment === undefined && selected !== undefined) {
    return {
      access: { kubeconfig: args.kubeconfig, context: args.context },
      namespace: args.namespace ?? podAppName,
      deployment: args.deployment ?? podObjectName("embed"),
      url: urlOf(args.url),
    };
  }
  const described = clusterEnvironment(environment ?? defaultEnvironment("kind"));
  const services = described.services.filter(({ kind }) => kind === "embed");
  const service =
    args.deployment === undefined
      ? services[0]
      : services.find(({ workload }) => workload === args.deployment);
  const deployment = args.deployment ?? service?.workload;
  if (deployment === undefined) {
    throw new UserError(`${described.name}: must have an embed server on a Deployment, got none`);
  }
  const own = {
    kubeconfig: described.kubeconfig,
    context: described.where,
    namespace: described.namespace ?? podAppName,
  };
  const { kubeconfig = own.kubeconfig, context = own.context, namespace = own.namespace } = args;
  // the environment's address and API key are not used for another cluster or namespace
  const elsewhere =
    kubeconfig !== own.kubeconfig || context !== own.context || namespace !== own.namespace;
  const { url, address } = endpointOf(elsewhere ? undefined : service);
  return {
    environment: described.name,
    access: { kubeconfig, context },
    namespace,
    deployment,
    url: urlOf(args.url) ?? url,
    service: address && { name: address.service, port: address.port, scheme: address.scheme },
    requiresKey: service?.authorization !== undefined && (!elsewhere || args.url !== undefined),
  };
}

/** Reads a synthesized environment on a cluster. */
export function clusterEnvironment(name: string): Environment {
  const { file, displayPath } = environmentFile(name);
  const environment = readEnvironment(file, displayPath);
  if (environment.namespace === undefined) {
    throw new UserError(
      `environment must be on a cluster, such as kind-local, got '${name}' on ${environment.where}`,
    );
  }
  return environment;
}

function endpointOf(service: Service | undefined) {
  const url = service?.endpoints.find(({ name }) => name === "embed-http")?.url;
  const address = url === undefined ? undefined : clusterAddress(url);
  const scheme: "http" | "https" = url?.startsWith("https:") ? "https" : "http";
  return {
    url: address === undefined ? url : undefined,
    address: address && { ...address, scheme },
  };
}

function urlOf(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  if (!URL.canParse(text) || !/^https?:\/\//.test(text)) {
    throw new UserError(`--url must be a URL such as http://127.0.0.1:8092, got '${text}'`);
  }
  return text.replace(/\/+$/, "");
}
