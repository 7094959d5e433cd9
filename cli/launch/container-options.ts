import type { DeclaredContainer } from "../../artefact/declared-container.ts";
import type { Workload } from "../../artefact/workload.ts";
import { UserError } from "../../contract/user-error.ts";
import { servicePorts } from "./service-ports.ts";

/** Variables of the embed server whose values differ in the all-in-one image. */
const replacedVariables: ReadonlySet<string> = new Set(["PORT", "TRITON_GRPC_URLS"]);

const stopSeconds = 60;

/** Returns the variables of the embed server, with its Triton servers in the same container. */
export function embedEnv(
  embed: Workload,
  tritons: readonly Workload[],
): Readonly<Record<string, string>> {
  const own = Object.fromEntries(
    Object.entries(embed.env).filter(
      ([name]) => !replacedVariables.has(name) && name !== "API_KEY" && !name.startsWith("NVIDIA_"),
    ),
  );
  const upstreams = (embed.env.TRITON_GRPC_URLS ?? "").split(",").filter((target) => target !== "");
  if (upstreams.length === 0) return own;
  const local = upstreams.map((target) => {
    const [host = "", innerPort = ""] = target.split(":");
    const triton = tritons.find(({ name, aliases }) => name === host || aliases.includes(host));
    const port = servicePorts[triton?.service.name ?? ""]?.get(Number(innerPort));
    if (port === undefined) {
      throw new UserError(
        `TRITON_GRPC_URLS must name Triton servers of the environment, got '${target}'`,
      );
    }
    return `127.0.0.1:${port}`;
  });
  return { ...own, TRITON_GRPC_URLS: local.join(",") };
}

/** Returns NVIDIA's variables. Containers with different GPU requests are rejected. */
export function gpuEnv(declared: readonly DeclaredContainer[]): Readonly<Record<string, string>> {
  const lines = declared.flatMap(({ env }) => env.filter((line) => line.startsWith("NVIDIA_")));
  return Object.fromEntries(
    [...new Set(lines)].map((line) => [line.split("=")[0] ?? "", line.replace(/^[^=]*=/, "")]),
  );
}

/** Returns the options of `docker run`: those that all containers share, and the sums of their memory limits. */
export function runOptions(declared: readonly DeclaredContainer[]): readonly (readonly string[])[] {
  const [first] = declared;
  if (first === undefined) return [];
  const tmpfsMiB = declared
    .flatMap(({ tmpfs }) => Object.values(tmpfs))
    .map((text) => Number(/size=(\d+)m/.exec(text)?.[1] ?? 0))
    .reduce((sum, size) => sum + size, 0);
  const memoryMiB = declared.reduce((sum, { memory }) => sum + memory, 0);
  const sharedMiB = declared.reduce((sum, { shm_size }) => sum + (shm_size ?? 0), 0);
  const limits = new Map(declared.flatMap(({ ulimit }) => ulimit.map((it) => [it.name, it])));
  const drop = first.capabilities.flatMap((it) => it.drop);
  return [
    ["--restart", first.restart],
    ...(first.user === undefined ? [] : [["--user", first.user]]),
    ...(first.read_only ? [["--read-only"]] : []),
    ...(tmpfsMiB > 0 ? [["--tmpfs", `/tmp:rw,nosuid,nodev,size=${tmpfsMiB}m`]] : []),
    ...drop.map((name) => ["--cap-drop", name]),
    ...first.security_opts.map((option) => ["--security-opt", option]),
    ...(memoryMiB > 0 ? [["--memory", `${memoryMiB}m`]] : []),
    ...(sharedMiB > 0 ? [["--shm-size", `${sharedMiB}m`]] : []),
    ...[...limits.values()].map(({ name, soft, hard }) => ["--ulimit", `${name}=${soft}:${hard}`]),
    ["--stop-timeout", String(stopSeconds)],
    ...(first.log_driver === undefined ? [] : [["--log-driver", first.log_driver]]),
    ...Object.entries(first.log_opts).map(([key, value]) => ["--log-opt", `${key}=${value}`]),
  ];
}
