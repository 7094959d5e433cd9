import { posix } from "node:path";
import type { Values } from "../input/change.ts";
import { textsIn } from "../input/value-paths.ts";

/** Sockets of container runtimes: access to one is root access to the host. */
export const runtimeSocket =
  /(docker|containerd|crio|cri-dockerd|podman)\.sock(\.raw)?$|[/\\]docker_engine$/;

/** Folders and files of a host whose mount is equivalent to root access, or contains keys or sockets. */
const sensitiveHostPaths = [
  /^\/((bin|boot|dev|etc|home|lib|opt|proc|root|run|sbin|srv|sys|usr|var|var\/lib|var\/run)?$|(boot|proc|root|run|sys|var\/run)\/)/,
  /^\/dev\/(?!(shm|null|zero|u?random)$)|^\/home\/[^/]+(\/\.|$)|[./-]sock(et)?$/,
  /^\/var\/lib\/(docker|containerd|kubelet|etcd|rancher)(\/|$)/,
  /^\/etc\/(kubernetes|shadow|passwd|sudoers|ssh|cron|systemd|docker|pam\.d|ssl\/private|letsencrypt)/,
];

export function isSensitivePath(path: string): boolean {
  return sensitiveHostPaths.some((it) => it.test(path));
}

/** Attributes with a path of the host: of containers and services on Docker, its volumes, pods, and volumes of a cluster. */
const hostPathNames = /(^|\.)(host_?path(\.path)?|mounts\.source|driver_opts\.device)$/i;

/** Paths of the host that a resource of any type mounts. */
export function hostPathsOf(values: Values | undefined): readonly string[] {
  const found = textsIn(values).filter(([path]) =>
    hostPathNames.test(path.filter((step) => typeof step === "string").join(".")),
  );
  return [...new Set(found.map(([, text]) => normalPath(text)))];
}

/** `/run/docker.sock` of `/var/../run//docker.sock/`. */
export function normalPath(path: string): string {
  return path.startsWith("/") ? posix.normalize(path).replace(/(?<=.)\/$/, "") : path;
}
