import { posix } from "node:path";
import type { ContainerVolumes } from "#providers/docker/lib/container/index.js";
import type { ServerEnvName } from "../../contract/server/server-env.ts";
import { findingIf } from "../checks/findings.ts";
import { plaintextFindings } from "../checks/ports.ts";
import type { GpuHost } from "./gpu-host.ts";
import type { Exposure } from "./host-plan.ts";
import type { RequiredFile } from "./host-requirements.ts";

/** Who may reach an embed server on a GPU host, with which key, and whether over TLS. */
export interface EmbedAccessProps {
  /**
   * Interfaces on which the port is published.
   *
   * @default "loopback"
   */
  readonly expose?: Exposure;
  /**
   * PEM files of the host with the certificate chain and its private key. Their folders are mounted, so that the server finds files that
   * replace them.
   *
   * @default - plain HTTP
   */
  readonly tls?: { readonly certificate: string; readonly key: string };
  /**
   * JSON file of the host with the keys of clients, mounted like those of `tls`.
   *
   * @default - one key from a Terraform variable if the port is published on all interfaces, otherwise none
   */
  readonly keys?: string;
  /**
   * Whether publishing on all interfaces is allowed without TLS.
   *
   * @default false
   */
  readonly allowPlaintext?: boolean;
}

/** Values derived from {@link EmbedAccessProps}. */
export interface EmbedAccess {
  readonly env: Partial<Record<ServerEnvName, string>>;
  readonly mounts: readonly ContainerVolumes[];
  readonly files: readonly RequiredFile[];
  /** Interfaces on which the container is published; those of `expose`, unless a proxy has TLS. */
  readonly published: Exposure;
  /** Scheme at the port of the container. */
  readonly scheme: "http" | "https";
  readonly requiresKey: boolean;
  /** Whether the key is a Terraform variable. */
  readonly keyInVariable: boolean;
  readonly findings: readonly string[];
}

/** Folder of containers below which folders of the host are mounted, at their paths. */
const hostFolders = "/host";

/** Mounts of the folders of files on the host, so that a container finds files that replace them. */
export function hostFileMounts(
  files: readonly { readonly prop: string; readonly path: string }[],
): {
  /** Paths of the files in the container. */
  readonly paths: readonly string[];
  readonly mounts: readonly ContainerVolumes[];
  readonly findings: readonly string[];
} {
  const folders = new Set(files.map(({ path }) => posix.dirname(path)));
  return {
    paths: files.map(({ path }) => `${hostFolders}${path}`),
    mounts: [...folders].map((hostPath) => ({
      hostPath,
      containerPath: `${hostFolders}${hostPath}`,
      readOnly: true,
    })),
    findings: files.flatMap(({ prop, path }) =>
      findingIf(
        posix.dirname(path).split("/").length < 3,
        prop,
        "be in a folder such as /etc/clipstack, because the container gets its folder",
        `'${path}'`,
      ),
    ),
  };
}

export function embedAccess({
  expose = "loopback",
  tls,
  keys,
  allowPlaintext = false,
  host,
}: EmbedAccessProps & { readonly host: Pick<GpuHost, "isProxied" | "published"> }): EmbedAccess {
  const isProxied = host.isProxied(expose);
  const given = [
    ["tls.certificate", "TLS_CERT_FILE", "certificate", tls?.certificate],
    ["tls.key", "TLS_KEY_FILE", "key of the certificate", tls?.key],
    ["keys", "API_KEYS_FILE", "keys of clients", keys],
  ] as const;
  const files = given.flatMap(([prop, env, what, path]) =>
    path === undefined ? [] : [{ prop, env, what, path }],
  );
  const { paths, mounts, findings } = hostFileMounts(files);
  return {
    env: Object.fromEntries(files.map(({ env }, index) => [env, paths[index]])),
    mounts,
    files: files.map(({ path, what }) => ({ path, on: "host", what })),
    published: host.published(expose),
    scheme: tls === undefined ? "http" : "https",
    requiresKey: expose !== "loopback" || keys !== undefined,
    keyInVariable: expose !== "loopback" && keys === undefined,
    findings: [
      ...plaintextFindings(expose, tls !== undefined || isProxied || allowPlaintext, "tls is set"),
      ...findingIf(
        isProxied && tls !== undefined,
        "tls",
        "be unset if the host has acme",
        `'${tls?.certificate}'`,
      ),
      ...findings,
    ],
  };
}
