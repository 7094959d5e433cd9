import { mkdtempSync, rmSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { execa, type ResultPromise } from "execa";
import type { z } from "zod";
import type { PreparedRequests } from "../../bench/load/prepared-requests.ts";
import { apiStatus } from "../../bench/src/cluster-objects.ts";
import {
  type HttpAnswer,
  type HttpClient,
  jsonOf,
  openHttpClient,
} from "../../bench/src/http-client.ts";
import { type ProgramResult, runProgram } from "./run-program.ts";
import { UserError } from "./user-error.ts";

/** A cluster as kubectl knows it, with the keys that its user has set up. */
export interface ClusterAccess {
  /** File; absent: the one that kubectl takes by itself. `~` is the home folder. */
  readonly kubeconfig?: string;
  /** Of the kubeconfig; absent: its current one. */
  readonly context?: string;
}

/** Longest that kubectl may take for an answer. */
export const answerMs = 60_000;

/** Arguments that name the cluster. */
export function accessArgs({ kubeconfig, context }: ClusterAccess): readonly string[] {
  return [
    ...(kubeconfig === undefined
      ? []
      : [`--kubeconfig=${kubeconfig.replace(/^~(?=\/|$)/, homedir())}`]),
    ...(context === undefined ? [] : [`--context=${context}`]),
  ];
}

/** How a person calls the cluster. */
export function accessText({ kubeconfig, context }: ClusterAccess): string {
  const file = kubeconfig === undefined ? "" : ` of ${kubeconfig}`;
  return `${context === undefined ? "the current context" : `context '${context}'`}${file}`;
}

/**
 * Run kubectl.
 *
 * @returns What it printed.
 * @throws {UserError} one line, when there is no kubectl, no such cluster, or it refuses.
 */
export async function kubectl(
  access: ClusterAccess,
  args: readonly string[],
  signal?: AbortSignal,
): Promise<string> {
  const result = await runProgram("kubectl", [...accessArgs(access), ...args], {
    timeoutMs: answerMs,
    signal,
  });
  signal?.throwIfAborted();
  if (result.outcome === "ended" && result.exitCode === 0) return result.stdout;
  throw new UserError(kubectlProblem(result, access, args));
}

/** One line for a person: what is in the way of kubectl, or what it said. */
export function kubectlProblem(
  { outcome, stderr }: Pick<ProgramResult, "outcome" | "stderr">,
  access: ClusterAccess,
  args: readonly string[],
): string {
  if (outcome === "missing") {
    return "kubectl is not installed on this machine, and clusters are asked through it: https://kubernetes.io/docs/tasks/tools";
  }
  if (outcome === "late") {
    return `kubectl ${args[0] ?? ""}: ${accessText(access)} did not answer in ${answerMs / 1_000} s`;
  }
  const lines = stderr
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !/^[EWI]\d{4} |^Unable to connect.*\^/.test(line));
  const said = lines.find((line) => /^error/i.test(line)) ?? lines.at(-1) ?? "it said nothing";
  const missing =
    /context "?([^"\s]+)"? does not exist|context was not found for specified context: (\S+)/.exec(
      said,
    );
  if (missing !== null) {
    return `there is no ${accessText(access)}: deploy the environment, or see 'kubectl config get-contexts'`;
  }
  if (
    /stat .*no such file|no such file or directory/.test(said) &&
    access.kubeconfig !== undefined
  ) {
    return `kubeconfig ${access.kubeconfig} is not there: deploy the environment, or give another one with --kubeconfig`;
  }
  if (unreachable.test(said)) {
    return `the cluster of ${accessText(access)} does not answer: ${said}`;
  }
  return `kubectl ${args.slice(0, 2).join(" ")}: ${said.replace(/^error: /i, "")}`;
}

const unreachable =
  /connection to the server .* was refused|unable to connect to the server|no route to host|i\/o timeout|tls handshake timeout|connection refused|no configuration has been provided/i;

/** The API server refuses what was asked. */
export class ApiRefusal extends Error {
  override readonly name = "ApiRefusal";

  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

/** The API of a cluster, with the keys that kubectl has. */
export interface ClusterApi {
  readonly access: ClusterAccess;
  /** Of a path such as `/api/v1/namespaces/x/pods`; nothing where there is no such object. */
  get<T extends z.ZodType>(path: string, schema: T): Promise<z.infer<T> | undefined>;
  /** @throws {ApiRefusal} with the API server's status and message. */
  post(path: string, body: unknown): Promise<void>;
  delete(path: string): Promise<void>;
  /** Where a Service is reached through the API server, which chooses a pod for each request. */
  serviceUrl(namespace: string, service: string, port: string | number): string;
  /** A client for {@link serviceUrl}. */
  openHttp(): HttpClient;
  /** How a load connects to {@link serviceUrl}. */
  readonly connect: PreparedRequests["connect"];
  close(): Promise<void>;
}

/** A kubectl that goes on until it is ended, or this process is gone. */
export interface RunningKubectl {
  readonly child: ResultPromise<{ reject: false; stdin: "pipe" }>;
  /** @returns What it left. */
  end(): Promise<Pick<ProgramResult, "outcome" | "stderr">>;
}

/** Ends kubectl when its own input is closed, which is so when nobody holds the other end any more. */
const whileHeld = [
  "exec 3<&0",
  'kubectl "$@" 3<&- & program=$!',
  "{ cat <&3 >/dev/null; kill $program; } 2>/dev/null & holder=$!",
  "wait $program; code=$?",
  "kill $holder 2>/dev/null",
  "exit $code",
].join("\n");

/** kubectl ends at once when it is asked to. */
const endMs = 3_000;

/** What a shell exits with where there is no such program. */
const notFound = 127;

export function startKubectl(args: readonly string[]): RunningKubectl {
  const child = execa("sh", ["-c", whileHeld, "kubectl", ...args], {
    env: { LC_ALL: "C" },
    stdin: "pipe",
    reject: false,
    // Ctrl-C of a terminal is for its whole group, and this must live until the cluster is as it was
    detached: true,
  });
  return {
    child,
    async end() {
      child.stdin.end();
      // the shell leads a group of its own
      const force = setTimeout(() => {
        if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
      }, endMs);
      const { code, exitCode, stderr } = await child;
      clearTimeout(force);
      const missing = code === "ENOENT" || exitCode === notFound;
      return { outcome: missing ? "missing" : "ended", stderr: stderr ?? "" };
    },
  };
}

const startMs = 20_000;
const requestMs = 30_000;

/**
 * Open the way to the API server: `kubectl proxy` on a socket that only this user can open.
 *
 * @throws {UserError} one line, when there is no kubectl or the cluster does not answer.
 */
export async function openCluster(
  access: ClusterAccess,
  signal?: AbortSignal,
): Promise<ClusterApi> {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-k8s-"));
  const socketPath = join(folder, "api");
  signal?.throwIfAborted();
  const program = startKubectl([...accessArgs(access), "proxy", `--unix-socket=${socketPath}`]);
  const { child } = program;
  const http = openHttpClient(16, undefined, { socketPath });
  const close = async (): Promise<void> => {
    await http.close();
    await program.end();
    rmSync(folder, { recursive: true, force: true });
  };
  const started = new Promise<boolean>((resolve) => {
    child.stdout?.on("data", (text) => /Starting to serve/.test(String(text)) && resolve(true));
    void child.then(() => resolve(false));
    setTimeout(() => resolve(false), startMs).unref();
    signal?.addEventListener("abort", () => resolve(false), { once: true });
  });
  try {
    const serves = await started;
    signal?.throwIfAborted();
    if (!serves) throw new UserError(kubectlProblem(await program.end(), access, ["proxy"]));
    const version = await http.send("http://localhost/version", { timeoutMs: requestMs, signal });
    if (version.status !== 200) {
      // the proxy says on its stderr why it could not connect
      const { stderr } = await program.end();
      const cause = /(dial tcp .*|x509: .*|getting credentials.*|lookup .*)$/m.exec(
        stderr ?? "",
      )?.[1];
      throw new UserError(
        `the cluster of ${accessText(access)} does not answer: ${cause ?? textOf(version)}`,
      );
    }
  } catch (error) {
    await close();
    throw error;
  }
  const send = async (method: "GET" | "POST" | "DELETE", path: string, body?: unknown) => {
    const answer = await http.send(`http://localhost${path}`, {
      method,
      timeoutMs: requestMs,
      ...(body === undefined
        ? {}
        : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
    });
    if (answer.status >= 200 && answer.status < 300) return answer;
    throw refusalOf(answer);
  };
  return {
    access,
    async get(path, schema) {
      try {
        const answer = await send("GET", path);
        const parsed = schema.safeParse(jsonOf(answer));
        if (parsed.success) return parsed.data;
        const issue = parsed.error.issues[0];
        throw new Error(`${path}: ${issue?.path.join(".")}: ${issue?.message}`);
      } catch (error) {
        if (error instanceof ApiRefusal && error.status === 404) return undefined;
        throw error;
      }
    },
    async post(path, body) {
      await send("POST", path, body);
    },
    async delete(path) {
      try {
        await send("DELETE", path);
      } catch (error) {
        if (!(error instanceof ApiRefusal) || error.status !== 404) throw error;
      }
    },
    serviceUrl: (namespace, service, port) =>
      `http://localhost/api/v1/namespaces/${namespace}/services/http:${service}:${port}/proxy`,
    openHttp: () => openHttpClient(512, undefined, { socketPath, oneRequestEach: true }),
    connect: { path: socketPath },
    close,
  };
}

/** What the API server said, its reasons included. */
export function refusalOf(answer: HttpAnswer): ApiRefusal {
  const said = apiStatus.safeParse(jsonOf(answer));
  if (!said.success) return new ApiRefusal(answer.status, "", textOf(answer));
  const causes = said.data.details.causes.map(({ message }) => message).filter((it) => it !== "");
  return new ApiRefusal(said.data.code, said.data.reason, [said.data.message, ...causes].join(" "));
}

function textOf({ status, body }: HttpAnswer): string {
  return body.toString("utf8").trim().split("\n")[0]?.slice(0, 300) || `status ${status}`;
}
