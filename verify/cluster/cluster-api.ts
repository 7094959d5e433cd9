import { existsSync } from "node:fs";
import type { RequestOptions } from "node:https";
import { homedir } from "node:os";
import type { KubeConfig, V1Status } from "@kubernetes/client-node";
import type { Wire } from "../../artefact/cluster-objects.ts";
import type { PreparedRequests } from "../../bench/load/prepared-requests.ts";
import {
  type HttpAnswer,
  type HttpClient,
  type HttpRequest,
  jsonOf,
  openHttpClient,
  reason,
} from "../../bench/run/http-client.ts";
import { UserError } from "../../contract/user-error.ts";

/** A cluster of a kubeconfig. */
export interface ClusterAccess {
  /** File; absent: `KUBECONFIG`, or `~/.kube/config`. `~` is the home folder. */
  readonly kubeconfig?: string;
  /** Context of the kubeconfig. @default - its current context */
  readonly context?: string;
}

/** Name of a cluster in messages. */
export function accessText({ kubeconfig, context }: ClusterAccess): string {
  const file = kubeconfig === undefined ? "" : ` of ${kubeconfig}`;
  return `${context === undefined ? "the current context" : `context '${context}'`}${file}`;
}

/** The API server rejects a request. */
export class ApiRejection extends Error {
  override readonly name = "ApiRefusal";

  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

/** The API server cannot be reached, or does not answer in time. */
export class ClusterUnreachable extends UserError {}

/** Service of a cluster, reached through the API server, which chooses a pod for each connection. */
export interface ServiceRoute {
  readonly url: string;
  /** Credentials of the API server. */
  readonly headers: Readonly<Record<string, string>>;
  readonly connect: PreparedRequests["connect"];
  readonly http: HttpClient;
}

/** The API of a cluster. Every method throws {@link ApiRejection} or {@link ClusterUnreachable}. */
export interface ClusterApi {
  readonly access: ClusterAccess;
  readonly config: KubeConfig;
  /** @returns The object, or nothing if there is none. */
  get<T>(path: string): Promise<T | undefined>;
  /** @returns The items; none if the cluster does not serve such objects. */
  list<T>(path: string): Promise<readonly T[]>;
  /** @returns The body as it is. */
  text(path: string): Promise<string>;
  post<T = unknown>(path: string, body: unknown): Promise<T>;
  patch(path: string, type: PatchType, body: unknown): Promise<void>;
  delete(path: string): Promise<void>;
  openService(namespace: string, service: string, port: string | number): Promise<ServiceRoute>;
  close(): Promise<void>;
}

/** `strategic-merge` merges lists by their keys. */
export type PatchType = "json" | "strategic-merge";

const requestMs = 30_000;

/**
 * Opens the API of a cluster with the credentials of its kubeconfig. It sends nothing yet.
 *
 * @throws {UserError} in one line if there is no such file or context.
 */
export async function openCluster(
  access: ClusterAccess,
  signal?: AbortSignal,
): Promise<ClusterApi> {
  const config = await loadKubeConfig(access);
  const cluster = config.getCurrentCluster();
  if (cluster === null) throw noContext(access);
  const server = cluster.server.replace(/\/+$/, "");
  const { tls } = await credentials(config, access);
  const ways = { tls, proxy: cluster.proxyUrl };
  const http = openHttpClient(16, undefined, ways);

  const send = async (path: string, request: HttpRequest = {}): Promise<HttpAnswer> => {
    signal?.throwIfAborted();
    // a token may have expired since the last request
    const { headers } = await credentials(config, access);
    const answer = await http
      .send(`${server}${path}`, {
        timeoutMs: requestMs,
        ...request,
        headers: { ...headers, ...request.headers },
      })
      .catch((error: unknown) => {
        throw new ClusterUnreachable(
          `the cluster of ${accessText(access)} does not answer: ${reason(error)}`,
        );
      });
    if (answer.status < 200 || answer.status >= 300) throw refusalOf(answer);
    return answer;
  };
  const withBody = (method: "POST" | "PATCH", type: string, body: unknown): HttpRequest => ({
    method,
    body: JSON.stringify(body),
    headers: { "content-type": type },
  });
  const get = async <T>(path: string): Promise<T | undefined> => {
    try {
      return jsonOf(await send(path)) as T;
    } catch (error) {
      if (error instanceof ApiRejection && error.status === 404) return undefined;
      throw error;
    }
  };
  return {
    access,
    config,
    get,
    async list<T>(path: string) {
      return (await get<{ readonly items: readonly T[] | null }>(path))?.items ?? [];
    },
    async text(path) {
      return (await send(path)).body.toString("utf8");
    },
    async post<T>(path: string, body: unknown) {
      return jsonOf(await send(path, withBody("POST", "application/json", body))) as T;
    },
    async patch(path, type, body) {
      await send(
        `${path}?fieldManager=clipstack`,
        withBody("PATCH", `application/${type}-patch+json`, body),
      );
    },
    async delete(path) {
      try {
        await send(path, { method: "DELETE" });
      } catch (error) {
        if (!(error instanceof ApiRejection) || error.status !== 404) throw error;
      }
    },
    async openService(namespace, service, port) {
      const { headers } = await credentials(config, access);
      return {
        url: `${server}${namespacedPath(namespace, "v1", "services", `http:${service}:${port}`)}/proxy`,
        headers,
        connect: tls,
        http: openHttpClient(512, undefined, { ...ways, headers, oneRequestEach: true }),
      };
    },
    close: () => http.close(),
  };
}

/** Path of objects of a namespace, or of one. */
export function namespacedPath(
  namespace: string,
  group: string,
  plural: string,
  name?: string,
): string {
  const root = group === "v1" ? "/api/v1" : `/apis/${group}`;
  return `${root}/namespaces/${namespace}/${plural}${name === undefined ? "" : `/${name}`}`;
}

/** Query of a list: the objects that have these labels. */
export function selectedBy(labels: Readonly<Record<string, string>> = {}): string {
  const pairs = Object.entries(labels).map((pair) => pair.join("="));
  return `?labelSelector=${encodeURIComponent(pairs.join(","))}`;
}

async function loadKubeConfig(access: ClusterAccess): Promise<KubeConfig> {
  // it loads every API of Kubernetes: half a second
  const { KubeConfig } = await import("@kubernetes/client-node");
  const config = new KubeConfig();
  if (access.kubeconfig === undefined) config.loadFromDefault();
  else {
    const file = access.kubeconfig.replace(/^~(?=\/|$)/, homedir());
    if (!existsSync(file)) {
      throw new UserError(
        `kubeconfig ${access.kubeconfig} is not there: deploy the environment, or give another one with --kubeconfig`,
      );
    }
    try {
      config.loadFromFile(file);
    } catch (error) {
      throw new UserError(`kubeconfig ${access.kubeconfig} cannot be read: ${oneLine(error)}`);
    }
  }
  if (access.context !== undefined) {
    if (config.getContextObject(access.context) === null) throw noContext(access);
    config.setCurrentContext(access.context);
  }
  // the client rejects HTTP, which kubectl accepts (`kubectl proxy`), unless TLS need not be verified
  config.clusters = config.clusters.map((it) =>
    it.server.startsWith("http:") ? { ...it, skipTLSVerify: true } : it,
  );
  const cluster = config.getCurrentCluster();
  const exec = config.getCurrentUser()?.exec;
  if (cluster !== null && exec) {
    // as kubectl tells plugins where they are used; the client does not
    const { server, caData } = cluster;
    const info = {
      apiVersion: exec.apiVersion ?? "client.authentication.k8s.io/v1",
      kind: "ExecCredential",
      spec: {
        interactive: false,
        cluster: { server, ...(caData && { "certificate-authority-data": caData }) },
      },
    };
    exec.env = [...(exec.env ?? []), { name: "KUBERNETES_EXEC_INFO", value: JSON.stringify(info) }];
  }
  return config;
}

function noContext(access: ClusterAccess): UserError {
  return new UserError(
    `there is no ${accessText(access)}: deploy the environment, or see 'kubectl config get-contexts'`,
  );
}

/** Options of a connection and a request. Credential plugins are run, and their tokens are cached until they expire. */
async function credentials(config: KubeConfig, access: ClusterAccess) {
  const options: RequestOptions = {};
  try {
    await config.applyToHTTPSOptions(options);
  } catch (error) {
    throw new UserError(`no credentials for ${accessText(access)}: ${oneLine(error)}`);
  }
  const { ca, cert, key, rejectUnauthorized, servername, auth, headers } = options;
  return {
    tls: { ca, cert, key, rejectUnauthorized, servername } as const,
    headers: {
      ...(auth && { authorization: `Basic ${Buffer.from(auth).toString("base64")}` }),
      ...(headers as Readonly<Record<string, string>> | undefined),
    },
  };
}

/** Error message of the API server, with its causes. */
export function refusalOf(answer: HttpAnswer): ApiRejection {
  const said = jsonOf(answer) as Wire<V1Status> | undefined;
  if (said?.kind !== "Status") {
    const text = answer.body.toString("utf8").trim().split("\n")[0]?.slice(0, 300);
    return new ApiRejection(answer.status, "", text || `status ${answer.status}`);
  }
  const causes = (said.details?.causes ?? []).flatMap(({ message }) => message || []);
  return new ApiRejection(
    said.code ?? answer.status,
    said.reason ?? "",
    [said.message, ...causes].join(" "),
  );
}

function oneLine(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.trim().split("\n").at(-1) ?? "";
}
