import type { Command } from "commander";
import { readEnvironment } from "../../artefact/artefact.ts";
import { clusterAddress } from "../../artefact/cluster-address.ts";
import type { Environment, Service } from "../../contract/environment.ts";
import { podAppName, podObjectName } from "../../contract/pods.ts";
import { UserError } from "../../contract/user-error.ts";
import type { DrillTarget } from "../../verify/drills/snapshot.ts";
import { environmentFile } from "../artefact.ts";

/** How a person names a cluster, a Deployment and the way to it. */
export interface TargetArguments {
  readonly kubeconfig?: string;
  readonly context?: string;
  readonly namespace?: string;
  readonly deployment?: string;
  readonly url?: string;
}

/** The options of {@link TargetArguments}. */
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
      "where its Service answers from here (default: the environment's; without one, through the API server)",
    );
}

/** The environment that is meant where none is named. */
const defaultEnvironment = "kind-local";

/**
 * What an exercise is done to: an environment, as it was synthesized, or a Deployment of any cluster, named by options.
 *
 * @throws {UserError} for an environment that is no cluster, and for options that do not fit.
 */
export function drillTarget(environment: string | undefined, args: TargetArguments): DrillTarget {
  const byHand = args.context ?? args.kubeconfig ?? args.namespace;
  if (environment === undefined && byHand !== undefined) {
    return {
      access: { kubeconfig: args.kubeconfig, context: args.context },
      namespace: args.namespace ?? podAppName,
      deployment: args.deployment ?? podObjectName("embed"),
      url: urlOf(args.url),
    };
  }
  const described = clusterEnvironment(environment ?? defaultEnvironment);
  const services = described.services.filter(({ kind }) => kind === "embed");
  const names = services.map(({ workload }) => workload).filter((it) => it !== undefined);
  const service =
    args.deployment === undefined
      ? services[0]
      : services.find(({ workload }) => workload === args.deployment);
  const deployment = args.deployment ?? service?.workload;
  if (deployment === undefined) {
    throw new UserError(
      `${described.name}: no embed server stands on a Deployment, got ${names.join(", ") || "none"}`,
    );
  }
  const own = {
    kubeconfig: described.kubeconfig,
    context: described.where,
    namespace: described.namespace ?? podAppName,
  };
  const { kubeconfig = own.kubeconfig, context = own.context, namespace = own.namespace } = args;
  // what leads to the environment's own pods leads to no others, and its key is not for them
  const elsewhere =
    kubeconfig !== own.kubeconfig || context !== own.context || namespace !== own.namespace;
  const { url, address } = endpointOf(elsewhere ? undefined : service);
  return {
    environment: described.name,
    access: { kubeconfig, context },
    namespace,
    deployment,
    url: urlOf(args.url) ?? url,
    service: address === undefined ? undefined : { name: address.service, port: address.port },
    asksForKey: service?.authorization !== undefined && (!elsewhere || args.url !== undefined),
  };
}

/** A synthesized environment whose services are in a cluster. */
export function clusterEnvironment(name: string): Environment {
  const { file, shown } = environmentFile(name);
  const environment = readEnvironment(file, shown);
  if (environment.namespace === undefined) {
    throw new UserError(
      `environment must be one in a cluster, such as ${defaultEnvironment}, got '${name}' on ${environment.where}`,
    );
  }
  return environment;
}

function endpointOf(service: Service | undefined) {
  const url = service?.endpoints.find(({ name }) => name === "embed-http")?.url;
  const address = url === undefined ? undefined : clusterAddress(url);
  return { url: address === undefined ? url : undefined, address };
}

function urlOf(given: string | undefined): string | undefined {
  if (given === undefined) return undefined;
  if (!URL.canParse(given) || !/^https?:\/\//.test(given)) {
    throw new UserError(`--url must be a URL such as http://127.0.0.1:8092, got '${given}'`);
  }
  return given.replace(/\/+$/, "");
}
