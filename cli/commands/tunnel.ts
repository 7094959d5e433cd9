import { once } from "node:events";
import type { Command } from "commander";
import { readEnvironment } from "../../artefact/artefact.ts";
import { onInterrupt } from "../../artefact/interrupt.ts";
import type { Environment } from "../../contract/environment.ts";
import { aligned } from "../../report/render/text-table.ts";
import {
  openTunnel,
  planTunnel,
  TunnelError,
  type TunnelPlan,
  throughTunnel,
} from "../host/ssh-tunnel.ts";
import { environmentFile } from "../shared/artefact.ts";
import { portOffset } from "../shared/option-values.ts";

interface TunnelArguments {
  readonly portOffset: number;
  readonly json?: true;
}

/** Registers `clipstack tunnel`, which forwards the loopback ports of a host to this machine. */
export function registerTunnel(program: Command): void {
  program
    .command("tunnel")
    .argument("<environment>", "environment with host.docker: ssh://…")
    .option("--port-offset <number>", "added to every local port", portOffset, 0)
    .option("--json", "print only the endpoints, as JSON")
    .addHelpText(
      "after",
      `
Triton has no authentication, so its ports are on the host's loopback interface. ssh reads users, keys and jump hosts from
your ~/.ssh/config and runs non-interactively: key authentication must work, and the host key must be known.

Examples:
  $ npx clipstack tunnel single-gpu
  $ npx clipstack tunnel multi-gpu-4x --port-offset 10000

Exit codes: 0 closed with Ctrl-C or not needed, 1 ssh failed, 2 usage or settings error.`,
    )
    .action(tunnel);
}

async function tunnel(name: string, args: TunnelArguments): Promise<void> {
  const { file, displayPath } = environmentFile(name);
  const environment = withMonitoring(readEnvironment(file, displayPath));
  const plan = planTunnel(environment, args.portOffset);
  if (plan === undefined) {
    console.error(`clipstack: ${noTunnelMessage(environment)}`);
    if (args.json)
      process.stdout.write(`${JSON.stringify(reachableEndpoints(environment, undefined))}\n`);
    return;
  }
  const interrupt = onInterrupt();
  const hangUp = () => process.kill(process.pid, "SIGTERM");
  process.once("SIGHUP", hangUp);
  try {
    console.error(`clipstack: ssh ${plan.target.text} …`);
    const opened = await openTunnel(plan, interrupt.signal);
    if (args.json)
      process.stdout.write(`${JSON.stringify(reachableEndpoints(environment, plan))}\n`);
    else console.log(tunnelText(environment, plan));
    const interrupted = interrupt.signal.aborted
      ? Promise.resolve()
      : once(interrupt.signal, "abort");
    const failure = await Promise.race([opened.ended, interrupted.then(() => undefined)]);
    await opened.close();
    if (failure !== undefined) throw failure;
    console.error("clipstack: tunnel closed");
  } catch (error) {
    if (interrupt.signal.aborted) return;
    if (error instanceof TunnelError) throw new Error(`${name}: ${error.message}`);
    throw error;
  } finally {
    process.removeListener("SIGHUP", hangUp);
    interrupt.remove();
  }
}

type ReachableEnvironment = Omit<Environment, "services"> &
  Pick<Parameters<typeof planTunnel>[0], "services">;

/** Adds the monitoring of an environment to its services. */
export function withMonitoring(environment: Environment): ReachableEnvironment {
  const endpoints = Object.entries(environment.monitoring ?? {}).map(([protocol, url]) => ({
    protocol,
    url,
  }));
  const services = [
    ...environment.services,
    ...(endpoints.length === 0 ? [] : [{ name: "monitoring", endpoints }]),
  ];
  return { ...environment, services };
}

/** Returns the message to print if no SSH tunnel is opened: either none is needed, or host.docker is `tcp://`. */
export function noTunnelMessage(environment: ReachableEnvironment): string {
  const { name, where, services } = environment;
  const urls = services.flatMap(({ endpoints }) => endpoints.map(({ url }) => url));
  const forwards = [...new Set(urls)].flatMap((url) => portForward(environment, url));
  if (forwards.length > 0) {
    return `${name} needs no ssh tunnel; forward the Services of its cluster with ${forwards.join(", ")}`;
  }
  const directly = `its endpoints are reachable directly: ${[...new Set(urls)].join(", ")}`;
  if (where.startsWith("ssh://")) {
    return `${name} needs no tunnel: no port of ${where} is on the loopback interface, and ${directly}`;
  }
  if (where.startsWith("tcp://")) {
    return `${name}: host.docker must be ssh://user@host for a tunnel, got ${where}`;
  }
  return `${name} needs no tunnel: it is on this machine (${where}), and ${directly}`;
}

/** `kubectl port-forward` command for an endpoint inside a cluster: `http://<service>.<namespace>.svc:<port>`. */
function portForward({ where, kubeconfig }: ReachableEnvironment, url: string): readonly string[] {
  const [, service, namespace, port] =
    /^(?:https?:\/\/)?([^.:/]+)\.([^.:/]+)\.svc:(\d+)$/.exec(url) ?? [];
  if (service === undefined) return [];
  const file = kubeconfig === undefined ? "" : ` --kubeconfig ${kubeconfig}`;
  return [
    `'kubectl${file} --context ${where} --namespace ${namespace} port-forward service/${service} ${port}'`,
  ];
}

interface ReachableEndpoint {
  readonly service: string;
  readonly protocol: string;
  readonly url: string;
}

function reachableEndpoints(
  environment: ReachableEnvironment,
  plan: TunnelPlan | undefined,
): readonly ReachableEndpoint[] {
  return environment.services.flatMap(({ name, endpoints }) =>
    endpoints.map(({ protocol, url }) => ({
      service: name,
      protocol,
      url: throughTunnel(url, plan),
    })),
  );
}

function tunnelText(environment: ReachableEnvironment, plan: TunnelPlan): string {
  const rows = reachableEndpoints(environment, plan);
  const table = aligned(
    rows.map(({ service, protocol, url }) => [`  ${service}`, protocol, url]),
    () => "left",
  );
  return [
    `${environment.name} on ${plan.target.text} is reachable at:`,
    table,
    "Ctrl-C closes the tunnel",
  ].join("\n");
}
