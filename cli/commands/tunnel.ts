import { once } from "node:events";
import type { Command } from "commander";
import { readEnvironment } from "../../artefact/artefact.ts";
import { onInterrupt } from "../../artefact/interrupt.ts";
import { aligned } from "../../bench/report/text-table.ts";
import type { Environment } from "../../contract/environment.ts";
import { environmentFile } from "../artefact.ts";
import {
  openTunnel,
  planTunnel,
  TunnelError,
  type TunnelPlan,
  throughTunnel,
} from "../host/ssh-tunnel.ts";
import { portOffset } from "../option-values.ts";

interface TunnelArguments {
  readonly portOffset: number;
  readonly json?: true;
}

/** `clipstack tunnel`: the ports of a host that only the host itself can reach, on this machine. */
export function registerTunnel(program: Command): void {
  program
    .command("tunnel")
    .argument("<environment>", "an environment whose host.docker is ssh://…")
    .option(
      "--port-offset <number>",
      "added to every local port, where ports are taken",
      portOffset,
      0,
    )
    .option("--json", "print what is reachable where as JSON, and nothing else, on stdout")
    .addHelpText(
      "after",
      `
A Triton has no authentication of its own, so its ports are on the host's loopback interface. ssh takes the user, port,
keys and jump hosts of your ~/.ssh/config, and asks for nothing: a key must do, and the host's key must be known.

Examples:
  $ npx clipstack tunnel single-gpu
  $ npx clipstack tunnel multi-gpu-4x --port-offset 10000

Exit codes: 0 ended by Ctrl-C, or not needed; 1 ssh failed; 2 wrong usage or settings.`,
    )
    .action(tunnel);
}

async function tunnel(name: string, args: TunnelArguments): Promise<void> {
  const { file, shown } = environmentFile(name);
  const environment = readEnvironment(file, shown);
  const plan = planTunnel(environment, args.portOffset);
  if (plan === undefined) {
    console.error(`clipstack: ${noTunnel(environment)}`);
    if (args.json) process.stdout.write(`${JSON.stringify(reachable(environment, undefined))}\n`);
    return;
  }
  const interrupt = onInterrupt();
  const hangUp = () => process.kill(process.pid, "SIGTERM");
  process.once("SIGHUP", hangUp);
  try {
    console.error(`clipstack: ssh ${plan.target.shown} …`);
    const opened = await openTunnel(plan, interrupt.signal);
    if (args.json) process.stdout.write(`${JSON.stringify(reachable(environment, plan))}\n`);
    else console.log(tunnelText(environment, plan));
    const interrupted = interrupt.signal.aborted
      ? Promise.resolve()
      : once(interrupt.signal, "abort");
    const failure = await Promise.race([opened.ended, interrupted.then(() => undefined)]);
    await opened.close();
    if (failure !== undefined) throw failure;
    console.error("clipstack: the tunnel is closed");
  } catch (error) {
    if (interrupt.signal.aborted) return;
    if (error instanceof TunnelError) throw new Error(`${name}: ${error.message}`);
    throw error;
  } finally {
    process.removeListener("SIGHUP", hangUp);
    interrupt.remove();
  }
}

/** Why there is nothing to open. */
export function noTunnel(environment: Environment): string {
  const { name, where, services } = environment;
  const urls = services.flatMap(({ endpoints }) => endpoints.map(({ url }) => url));
  const forwards = [...new Set(urls)].flatMap((url) => portForward(environment, url));
  if (forwards.length > 0) {
    return `${name} needs no tunnel but kubectl, which leads to what only the cluster reaches: ${forwards.join(", ")}`;
  }
  const reached = `its endpoints are reached as they are: ${[...new Set(urls)].join(", ")}`;
  if (where.startsWith("ssh://")) {
    return `${name} needs no tunnel: every port of ${where} is open, and ${reached}`;
  }
  if (where.startsWith("tcp://")) {
    return `${name} is on ${where}, and a tunnel needs a host that is reached over ssh: set host.docker to ssh://user@host`;
  }
  return `${name} needs no tunnel: it is on this machine (${where}), and ${reached}`;
}

/** The command that leads to a Service, where an endpoint is one of a cluster: `http://<service>.<namespace>.svc:<port>`. */
function portForward({ where, kubeconfig }: Environment, url: string): readonly string[] {
  const [, service, namespace, port] =
    /^(?:https?:\/\/)?([^.:/]+)\.([^.:/]+)\.svc:(\d+)$/.exec(url) ?? [];
  if (service === undefined) return [];
  const file = kubeconfig === undefined ? "" : ` --kubeconfig ${kubeconfig}`;
  return [
    `'kubectl${file} --context ${where} --namespace ${namespace} port-forward service/${service} ${port}'`,
  ];
}

interface Reachable {
  readonly service: string;
  readonly protocol: string;
  readonly url: string;
}

function reachable(environment: Environment, plan: TunnelPlan | undefined): readonly Reachable[] {
  return environment.services.flatMap(({ name, endpoints }) =>
    endpoints.map(({ protocol, url }) => ({
      service: name,
      protocol,
      url: throughTunnel(url, plan),
    })),
  );
}

function tunnelText(environment: Environment, plan: TunnelPlan): string {
  const rows = reachable(environment, plan);
  const table = aligned(
    rows.map(({ service, protocol, url }) => [`  ${service}`, protocol, url]),
    () => "left",
  );
  return [
    `${environment.name} on ${plan.target.shown} is reached here:`,
    table,
    "Ctrl-C closes the tunnel",
  ].join("\n");
}
