import { posix } from "node:path";
import { z } from "zod";
import { modelControlHeader } from "../../inference-image/src/contract/triton-flags.ts";
import { blocks, seconds } from "./artefact.ts";
import type { InspectedContainer } from "./docker-inspect.ts";
import { evaluatePath } from "./terraform-text.ts";

/**
 * A container as it is declared against the container that is there. An aspect is one fact of both, as text: they are
 * the same when the texts are.
 */

const text = z.string();
const number = z.coerce.number();

/** The arguments of `docker_container` that an engine shows again. */
export const declaredContainer = z.object({
  name: text,
  image: text.optional(),
  user: text.optional(),
  env: z.array(text).default([]),
  command: z.array(text).default([]),
  entrypoint: z.array(text).default([]),
  capabilities: blocks(
    z.object({ add: z.array(text).default([]), drop: z.array(text).default([]) }),
  ),
  read_only: z.boolean().default(false),
  security_opts: z.array(text).default([]),
  privileged: z.boolean().default(false),
  restart: text.default("no"),
  max_retry_count: number.default(0),
  gpus: text.optional(),
  device_requests: blocks(
    z.object({ count: number.optional(), device_ids: z.array(text).default([]) }),
  ),
  devices: blocks(z.object({ host_path: text })),
  runtime: text.optional(),
  ports: blocks(
    z.object({
      internal: number,
      external: number.optional(),
      ip: text.default("0.0.0.0"),
      protocol: text.default("tcp"),
    }),
  ),
  healthcheck: blocks(
    z.object({
      test: z.array(text),
      interval: text.optional(),
      timeout: text.optional(),
      start_period: text.optional(),
      retries: number.default(0),
    }),
  ),
  memory: number.default(0),
  shm_size: number.optional(),
  tmpfs: z.record(text, text).default({}),
  ulimit: blocks(z.object({ name: text, soft: number, hard: number })),
  init: z.boolean().optional(),
  network_mode: text.optional(),
  networks_advanced: blocks(z.object({ name: text }).loose()),
  pid_mode: text.optional(),
  ipc_mode: text.optional(),
  volumes: blocks(
    z.object({
      container_path: text.optional(),
      host_path: text.optional(),
      volume_name: text.optional(),
      read_only: z.boolean().default(false),
    }),
  ),
  mounts: blocks(
    z.object({
      target: text,
      source: text.optional(),
      type: text,
      read_only: z.boolean().default(false),
    }),
  ),
  log_driver: text.optional(),
  log_opts: z.record(text, text).default({}),
  labels: blocks(z.object({ label: text, value: text })),
  stop_timeout: number.optional(),
  must_run: z.boolean().default(true),
});
export type DeclaredContainer = z.infer<typeof declaredContainer>;

export interface Aspect {
  /** As in "user must be …". */
  readonly name: string;
  readonly declared: string;
  readonly found: string;
}

export interface AspectContext {
  /** Id of the image that Terraform's state has for this container; absent where it is not known. */
  readonly imageId?: string;
  /** What `path.root` stands for. */
  readonly moduleFolder: string;
}

/** Everything that is declared, and what must not be there undeclared: privileges, ports, mounts, GPUs. */
export function aspectsOf(
  declared: DeclaredContainer,
  found: InspectedContainer,
  context: AspectContext,
): readonly Aspect[] {
  const { Config, HostConfig, NetworkSettings } = found;
  const capabilities = declared.capabilities[0] ?? { add: [], drop: [] };
  const health = declared.healthcheck[0];
  return [
    ...only(declared.user !== undefined, "user", declared.user, Config.User || "root"),
    {
      name: "capabilities",
      declared: capabilityText(capabilities.add, capabilities.drop),
      found: capabilityText(HostConfig.CapAdd, HostConfig.CapDrop),
    },
    {
      name: "root file system",
      declared: rootText(declared.read_only),
      found: rootText(HostConfig.ReadonlyRootfs),
    },
    {
      name: "security options",
      declared: setText(declared.security_opts.map(securityOption)),
      found: setText(HostConfig.SecurityOpt.map(securityOption)),
    },
    {
      name: "privileges",
      declared: declared.privileged ? "all" : "none",
      found: HostConfig.Privileged ? "all" : "none",
    },
    {
      name: "restart policy",
      declared: restartText(declared.restart, declared.max_retry_count),
      found: restartText(HostConfig.RestartPolicy.Name, HostConfig.RestartPolicy.MaximumRetryCount),
    },
    { name: "GPU request", declared: declaredGpus(declared), found: requestedGpus(HostConfig) },
    {
      name: "devices",
      declared: setText(declared.devices.map((device) => device.host_path)),
      found: setText(HostConfig.Devices.map((device) => device.PathOnHost)),
    },
    ...only(declared.runtime !== undefined, "runtime", declared.runtime, HostConfig.Runtime),
    ...environmentAspects(declared.env, Config.Env),
    { name: "published ports", declared: declaredPorts(declared), found: publishedPorts(found) },
    ...only(context.imageId !== undefined, "image", context.imageId, found.Image),
    ...only(
      health !== undefined,
      "health check",
      health && healthText(health.test, nanoseconds(health), health.retries),
      Config.Healthcheck
        ? healthText(
            Config.Healthcheck.Test,
            [
              Config.Healthcheck.Interval,
              Config.Healthcheck.Timeout,
              Config.Healthcheck.StartPeriod,
            ],
            Config.Healthcheck.Retries,
          )
        : "none",
    ),
    {
      name: "memory",
      declared: declared.memory === 0 ? "no limit" : `${declared.memory} MiB`,
      found: HostConfig.Memory === 0 ? "no limit" : mebibytes(HostConfig.Memory),
    },
    ...only(
      declared.shm_size !== undefined,
      "shared memory",
      `${declared.shm_size} MiB`,
      mebibytes(HostConfig.ShmSize),
    ),
    { name: "tmpfs", declared: mapText(declared.tmpfs), found: mapText(HostConfig.Tmpfs) },
    ...only(
      declared.ulimit.length > 0,
      "limits",
      setText(declared.ulimit.map(({ name, soft, hard }) => `${name} ${soft}:${hard}`)),
      setText(HostConfig.Ulimits.map(({ Name, Soft, Hard }) => `${Name} ${Soft}:${Hard}`)),
    ),
    ...only(
      declared.init !== undefined,
      "init process",
      String(declared.init),
      String(HostConfig.Init ?? false),
    ),
    ...only(
      declared.networks_advanced.length > 0 || declared.network_mode !== undefined,
      "networks",
      setText(
        declared.networks_advanced.length > 0
          ? declared.networks_advanced.map(({ name }) => name)
          : [declared.network_mode ?? ""],
      ),
      setText(Object.keys(NetworkSettings.Networks)),
    ),
    ...(["pid_mode", "ipc_mode"] as const).map((key) => {
      const mode = key === "pid_mode" ? HostConfig.PidMode : HostConfig.IpcMode;
      return {
        name: key === "pid_mode" ? "processes" : "shared memory with",
        declared: ownText(declared[key] ?? ""),
        found: ownText(mode),
      };
    }),
    {
      name: "mounts",
      declared: declaredMounts(declared, context.moduleFolder),
      found: mountsText(found.Mounts, declaredTargets(declared), unknownSources(declared, context)),
    },
    ...only(
      declared.log_driver !== undefined,
      "log",
      `${declared.log_driver} ${mapText(declared.log_opts)}`,
      `${HostConfig.LogConfig.Type} ${mapText(HostConfig.LogConfig.Config)}`,
    ),
    ...declared.labels.map(({ label, value }) => ({
      name: `label ${label}`,
      declared: value,
      found: Config.Labels[label] ?? "not set",
    })),
    ...only(
      declared.entrypoint.length > 0,
      "entry point",
      wordsText(declared.entrypoint),
      wordsText(Config.Entrypoint),
    ),
    ...only(
      declared.command.length > 0,
      "command",
      wordsText(declared.command),
      wordsText(Config.Cmd),
    ),
    ...only(
      declared.stop_timeout !== undefined,
      "stop timeout",
      `${declared.stop_timeout} s`,
      Config.StopTimeout == null ? "the engine's own" : `${Config.StopTimeout} s`,
    ),
  ];
}

/** Aspects that differ. What holds an expression that only Terraform can evaluate is compared around it. */
export function differences(aspects: readonly Aspect[]): readonly Aspect[] {
  return aspects.filter(({ declared, found }) => !matches(declared, found));
}

function matches(declared: string, found: string): boolean {
  if (!declared.includes("${")) return declared === found;
  const pattern = declared
    .split(/\$\{(?:[^{}]|\{[^{}]*\})*\}/)
    .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
    .join("[\\s\\S]*");
  return new RegExp(`^${pattern}$`).test(found);
}

function only(
  condition: boolean,
  name: string,
  declared: string | undefined,
  found: string,
): readonly Aspect[] {
  return condition && declared !== undefined ? [{ name, declared, found }] : [];
}

/** In the order of the alphabet: neither Terraform nor the engine keeps one. */
function setText(items: readonly string[]): string {
  return items.length === 0 ? "none" : [...new Set(items)].sort().join(", ");
}

function mapText(map: Readonly<Record<string, string>>): string {
  return setText(Object.entries(map).map(([key, value]) => `${key}=${value}`));
}

/** Command line without the key of the model control API, because aspects are reported. */
function wordsText(words: readonly string[]): string {
  return words
    .map((word) => word.replace(new RegExp(`(:${modelControlHeader}=).+$`, "s"), "$1…"))
    .join(" ");
}

function capabilityText(add: readonly string[], drop: readonly string[]): string {
  const named = (names: readonly string[]) =>
    setText(names.map((name) => name.toUpperCase().replace(/^CAP_/, "")));
  return `drop ${named(drop)}; add ${named(add)}`;
}

function rootText(readOnly: boolean): string {
  return readOnly ? "read-only" : "writable";
}

/** `no-new-privileges` and `no-new-privileges:true` are the same; so are `=` and `:` after the name. */
function securityOption(option: string): string {
  return option === "no-new-privileges" ? `${option}:true` : option.replace("=", ":");
}

function restartText(policy: string, retries: number): string {
  const name = policy === "" ? "no" : policy;
  return name === "on-failure" && retries > 0 ? `${name}:${retries}` : name;
}

const noGpus = "none";

function gpuText(count: number | undefined, ids: readonly string[]): string {
  if (ids.length > 0) return `device ${[...ids].sort().join(",")}`;
  return count === -1 ? "all" : `${count ?? 0} of them`;
}

function declaredGpus({ gpus, device_requests }: DeclaredContainer): string {
  const requests = device_requests.map(({ count, device_ids }) => gpuText(count, device_ids));
  if (gpus === undefined || gpus === "") return setText(requests);
  const devices = /(?:^|[",])device=([^"]+)/.exec(gpus)?.[1];
  const count = gpus === "all" ? -1 : Number(/(?:^|count=)(\d+)/.exec(gpus)?.[1]);
  return setText([...requests, gpuText(count, devices?.split(",") ?? [])]);
}

function requestedGpus({ DeviceRequests }: InspectedContainer["HostConfig"]): string {
  if (DeviceRequests.length === 0) return noGpus;
  return setText(DeviceRequests.map(({ Count, DeviceIDs }) => gpuText(Count, DeviceIDs)));
}

/** Variables that decide what a container may see; a declared value is shown only of these. */
const shownVariable = /^(?:NVIDIA_|CUDA_)/;

/** Every declared variable. An image adds its own, so that more of them say nothing. */
function environmentAspects(
  declared: readonly string[],
  found: readonly string[],
): readonly Aspect[] {
  const values = new Map(found.map((line) => split(line)));
  return declared.map((line) => {
    const [name, value] = split(line);
    const there = values.get(name);
    // what Terraform fills in may be a secret: that it is there is enough, and it is never shown
    if (value.includes("${")) {
      return { name, declared: "set", found: there === undefined ? "not set" : "set" };
    }
    if (there === undefined) return { name, declared: value, found: "not set" };
    const same = there === value;
    return {
      name,
      declared: value,
      found: same || shownVariable.test(name) ? there : "another value",
    };
  });
}

function split(line: string): readonly [string, string] {
  const equals = line.indexOf("=");
  return equals === -1 ? [line, ""] : [line.slice(0, equals), line.slice(equals + 1)];
}

function declaredPorts({ ports }: DeclaredContainer): string {
  return setText(
    ports.map(
      ({ internal, external, ip, protocol }) =>
        `${ip}:${external ?? "any port"} → ${internal}/${protocol}`,
    ),
  );
}

/** What the engine publishes now, or would when the container runs. */
function publishedPorts({ State, HostConfig, NetworkSettings }: InspectedContainer): string {
  const bindings = State.Status === "running" ? NetworkSettings.Ports : HostConfig.PortBindings;
  const published = Object.entries(bindings).flatMap(([port, list]) =>
    list
      // all addresses are published twice, for IPv4 and IPv6
      .filter(({ HostIp }) => HostIp !== "::")
      .map(({ HostIp, HostPort }) => `${HostIp || "0.0.0.0"}:${HostPort || "any port"} → ${port}`),
  );
  return setText(HostConfig.PublishAllPorts ? [...published, "all exposed ports"] : published);
}

function nanoseconds(check: DeclaredContainer["healthcheck"][number]): readonly number[] {
  return [check.interval, check.timeout, check.start_period].map((it) =>
    Math.round(seconds(it, 0) * 1e9),
  );
}

function healthText(test: readonly string[], times: readonly number[], retries: number): string {
  const [interval = 0, timeout = 0, start = 0] = times.map((it) => it / 1e9);
  return `${test.join(" ")} (every ${interval} s, timeout ${timeout} s, ${retries} retries, ${start} s to start)`;
}

function mebibytes(bytes: number): string {
  return `${bytes / 2 ** 20} MiB`;
}

/** Only what a container shares with the host or another container matters. */
function ownText(mode: string): string {
  return /^(?:host|container:)/.test(mode) ? mode : "its own";
}

interface Mount {
  readonly target: string;
  readonly source: string;
  readonly readOnly: boolean;
}

const someFolder = "a folder of the host";
const someVolume = "an anonymous volume";

function mountText({ target, source, readOnly }: Mount): string {
  return `${target} of ${source}${readOnly ? ", read-only" : ""}`;
}

function mountsOf(declared: DeclaredContainer, moduleFolder: string): readonly Mount[] {
  const folder = (path: string) => {
    const known = evaluatePath(path, moduleFolder);
    return known === undefined ? someFolder : posix.normalize(known);
  };
  return [
    ...declared.volumes.map(({ container_path, host_path, volume_name, read_only }) => ({
      target: container_path ?? "",
      source: host_path === undefined ? (volume_name ?? someVolume) : folder(host_path),
      readOnly: read_only,
    })),
    ...declared.mounts
      .filter(({ type }) => type !== "tmpfs")
      .map(({ target, source, type, read_only }) => ({
        target,
        source: source === undefined ? someVolume : type === "bind" ? folder(source) : source,
        readOnly: read_only,
      })),
  ];
}

function declaredTargets(declared: DeclaredContainer): ReadonlySet<string> {
  return new Set(mountsOf(declared, "").map(({ target }) => target));
}

/** Targets whose source only Terraform knows. */
function unknownSources(
  declared: DeclaredContainer,
  { moduleFolder }: AspectContext,
): ReadonlyMap<string, string> {
  return new Map(
    mountsOf(declared, moduleFolder)
      .filter(({ source }) => source === someFolder || source === someVolume)
      .map(({ target, source }) => [target, source]),
  );
}

function declaredMounts(declared: DeclaredContainer, moduleFolder: string): string {
  return listText(mountsOf(declared, moduleFolder).map(mountText));
}

/** Volumes that an image declares for itself are no fault; a folder of the host that nobody declared is. */
function mountsText(
  mounts: InspectedContainer["Mounts"],
  targets: ReadonlySet<string>,
  unknown: ReadonlyMap<string, string>,
): string {
  return listText(
    mounts
      .filter(
        ({ Type, Destination }) =>
          Type !== "tmpfs" && (Type === "bind" || targets.has(Destination)),
      )
      .map(({ Name, Source, Destination, RW }) =>
        mountText({
          target: Destination,
          source: unknown.get(Destination) ?? Name ?? Source,
          readOnly: !RW,
        }),
      ),
  );
}

function listText(items: readonly string[]): string {
  return items.length === 0 ? "none" : [...items].sort().join("; ");
}
