import { existsSync } from "node:fs";
import type { RequestOptions } from "node:https";
import { homedir } from "node:os";
import type { KubeConfig, V1Status } from "@kubernetes/client-node";
import type { Wire } from "../../artefact/cluster-objects.ts";
import { messageOf, UserError } from "../../contract/user-error.ts";
import {
  type HttpClient,
  type HttpRequest,
  type HttpResponse,
  jsonOf,
  openHttpClient,
  reason,
} from "../../target/requests/http-client.ts";
import type { PreparedRequests } from "../../target/requests/prepared-requests.ts";

/** Selects a cluster of a kubeconfig. */
export interface ClusterAccess {
  /** File; `~` is the home folder. @default - `KUBECONFIG`, or `~/.kube/config` */
  readonly kubeconfig?: string;
  /** Context of the kubeconfig. @default - its current context */
  readonly context?: string;
}

/** Name of a cluster in messages. */
export function accessText({ kubeconfig, context }: ClusterAccess): string {
  const file = kubeconfig === undefined ? "" : ` of ${kubeconfig}`;
  return `${context === undefined ? "the current context" : `context '${context}'`}${file}`;
}

/** Rejection of a request by the API server. */
export class ApiRejection extends Error {
  override readonly name = "ApiRejection";

  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

/** The API server cannot be reached, or does not respond in time. */
export class ClusterUnreachable extends UserError {}

/** Service of a cluster, reached through the API server, which selects a pod for each connection. */
export interface ServiceRoute {
  readonly url: string;
  /** Credentials for the API server. */
  readonly headers: Readonly<Record<string, string>>;
  readonly connect: PreparedRequests["connect"];
  readonly http: HttpClient;
}

/** Kubernetes API of a cluster. Every method throws {@link ApiRejection} or {@link ClusterUnreachable}. */
export interface ClusterApi {
  readonly access: ClusterAccess;
  readonly config: KubeConfig;
  /** @returns The object, or undefined on status 404. */
  get<T>(path: string): Promise<T | undefined>;
  /** @returns The items; empty if the cluster does not serve the kind. */
  list<T>(path: string): Promise<readonly T[]>;
  /** @returns The unparsed body. */
  text(path: string): Promise<string>;
  post<T = unknown>(path: string, body: unknown): Promise<T>;
  patch(path: string, type: PatchType, body: unknown): Promise<void>;
  delete(path: string): Promise<void>;
  openService(
    namespace: string,
    service: string,
    port: string | number,
    scheme?: "http" | "https",
  ): Promise<ServiceRoute>;
  close(): Promise<void>;
}

/** `strategic-merge` merges lists by their keys. */
export type PatchType = "json" | "strategic-merge";

const requestMs = 30_000;

/** Opens the API of a cluster with the credentials of its kubeconfig, without sending a request. */
export async function openCluster(
  access: ClusterAccess,
  signal?: AbortSignal,
): Promise<ClusterApi> {
  const config = await loadKubeConfig(access);
  const cluster = config.getCurrentCluster();
  if (cluster === null) throw noContext(access);
  const server = cluster.server.replace(/\/+$/, "");
  const { tls } = await credentials(config, access);
  const connection = { tls, proxy: cluster.proxyUrl };
  const http = openHttpClient(16, undefined, connection);

  const send = async (path: string, request: HttpRequest = {}): Promise<HttpResponse> => {
    signal?.throwIfAborted();
    return sendWithCredentials(http, `${server}${path}`, request, config, access);
  };
  const get = async <T>(path: string): Promise<T | undefined> => {
    const response = await ifFound(send(path));
    return response && (jsonOf(response) as T);
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
      await ifFound(send(path, { method: "DELETE" }));
    },
    async openService(namespace, service, port, scheme = "http") {
      const { headers } = await credentials(config, access);
      return {
        url: `${server}${namespacedPath(namespace, "v1", "services", `${scheme}:${service}:${port}`)}/proxy`,
        headers,
        connect: tls,
        http: openHttpClient(512, undefined, { ...connection, headers, closeAfterResponse: true }),
      };
    },
    close: () => http.close(),
  };
}

/** Returns undefined on status 404. */
async function ifFound<T>(response: Promise<T>): Promise<T | undefined> {
  try {
    return await response;
  } catch (error) {
    if (error instanceof ApiRejection && error.status === 404) return undefined;
    throw error;
  }
}

function withBody(method: "POST" | "PATCH", type: string, body: unknown): HttpRequest {
  return { method, body: JSON.stringify(body), headers: { "content-type": type } };
}

/** @throws {ApiRejection} on a status other than 2xx */
async function sendWithCredentials(
  http: HttpClient,
  url: string,
  request: HttpRequest,
  config: KubeConfig,
  access: ClusterAccess,
): Promise<HttpResponse> {
  // a token may have expired since the last request
  const { headers } = await credentials(config, access);
  const response = await http
    .send(url, {
      timeoutMs: requestMs,
      ...request,
      headers: { ...headers, ...request.headers },
    })
    .catch((error: unknown) => {
      throw new ClusterUnreachable(
        `the cluster of ${accessText(access)} does not respond: ${reason(error)}`,
      );
    });
  if (response.status < 200 || response.status >= 300) throw rejectionOf(response);
  return response;
}

/** API path of the objects of a kind in a namespace, or of one object. */
export function namespacedPath(
  namespace: string,
  group: string,
  plural: string,
  name?: string,
): string {
  const root = group === "v1" ? "/api/v1" : `/apis/${group}`;
  return `${root}/namespaces/${namespace}/${plural}${name === undefined ? "" : `/${name}`}`;
}

/** Query that selects objects by labels. */
export function selectedBy(labels: Readonly<Record<string, string>> = {}): string {
  const pairs = Object.entries(labels).map((pair) => pair.join("="));
  return `?labelSelector=${encodeURIComponent(pairs.join(","))}`;
}

async function loadKubeConfig(access: ClusterAccess): Promise<KubeConfig> {
  // imported on demand, because it takes half a second
  const { KubeConfig } = await import("@kubernetes/client-node");
  const config = new KubeConfig();
  if (access.kubeconfig === undefined) config.loadFromDefault();
  else {
    const file = access.kubeconfig.replace(/^~(?=\/|$)/, homedir());
    if (!existsSync(file)) {
      throw new UserError(
        `kubeconfig ${access.kubeconfig} does not exist: deploy the environment, or set --kubeconfig`,
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
    // kubectl passes the cluster to credential plugins; the client library does not
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
    `${accessText(access)} does not exist: deploy the environment, or run 'kubectl config get-contexts'`,
  );
}

/** TLS options and request headers. Runs credential plugins, whose tokens are cached until they expire. */
async function credentials(config: KubeConfig, access: ClusterAccess) {
  const options: RequestOptions = {};
  try {
    await config.applyToHTTPSOptions(options);
  } catch (error) {
    throw new UserError(`cannot get credentials for ${accessText(access)}: ${oneLine(error)}`);
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

/** Parses a rejection: the message of the API server with its causes. */
export function rejectionOf(response: HttpResponse): ApiRejection {
  const status = jsonOf(response) as Wire<V1Status> | undefined;
  if (status?.kind !== "Status") {
    const text = response.body.toString("utf8").trim().split("\n")[0]?.slice(0, 300);
    return new ApiRejection(response.status, "", text || `status ${response.status}`);
  }
  const causes = (status.details?.causes ?? []).flatMap(({ message }) => message || []);
  return new ApiRejection(
    status.code ?? response.status,
    status.reason ?? "",
    [status.message, ...causes].join(" "),
  );
}

function oneLine(error: unknown): string {
  const text = messageOf(error);
  return text.trim().split("\n").at(-1) ?? "";
}
