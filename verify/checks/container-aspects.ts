import { posix } from "node:path";
import type { DeclaredContainer } from "../../artefact/declared-container.ts";
import type { InspectedContainer } from "../../artefact/docker-inspect.ts";
import { evaluatePath } from "../../artefact/terraform-text.ts";
import { goSeconds } from "../../contract/quantity.ts";
import { modelControlHeader } from "../../contract/triton-flags.ts";
import type { Aspect } from "./aspect.ts";

export interface AspectContext {
  /** Image id in the Terraform state; absent if unknown. */
  readonly imageId?: string;
  /** Value of `path.root`. */
  readonly moduleFolder: string;
}

/** Declared and deployed text; undefined if the property is not declared, and then not compared. */
type Fact = readonly [name: string, declared: string | undefined, found: string];

const bytesPerMiB = 2 ** 20;

/** Compares every declared property. Privileges, ports, mounts and GPUs are compared even if undeclared. */
export function aspectsOf(
  declared: DeclaredContainer,
  found: InspectedContainer,
  context: AspectContext,
): readonly Aspect[] {
  return [
    ...securityFacts(declared, found),
    ...runtimeFacts(declared, found, context),
    ...resourceFacts(declared, found),
    ...networkAndMountFacts(declared, found, context),
    ...processFacts(declared, found),
  ].flatMap(([name, declaredText, foundText]) =>
    declaredText === undefined ? [] : [{ name, declared: declaredText, found: foundText }],
  );
}

function securityFacts(
  declared: DeclaredContainer,
  { Config, HostConfig }: InspectedContainer,
): readonly Fact[] {
  const capabilities = declared.capabilities[0] ?? { add: [], drop: [] };
  return [
    ["user", declared.user, Config.User || "root"],
    [
      "capabilities",
      capabilityText(capabilities.add, capabilities.drop),
      capabilityText(HostConfig.CapAdd, HostConfig.CapDrop),
    ],
    ["root file system", accessText(declared.read_only), accessText(HostConfig.ReadonlyRootfs)],
    [
      "security options",
      setText(declared.security_opts.map(securityOption)),
      setText(HostConfig.SecurityOpt.map(securityOption)),
    ],
    ["privileges", declared.privileged ? "all" : "none", HostConfig.Privileged ? "all" : "none"],
    [
      "restart policy",
      restartText(declared.restart, declared.max_retry_count),
      restartText(HostConfig.RestartPolicy.Name, HostConfig.RestartPolicy.MaximumRetryCount),
    ],
    ["GPU request", declaredGpus(declared), requestedGpus(HostConfig)],
    [
      "devices",
      setText(declared.devices.map((device) => device.host_path)),
      setText(HostConfig.Devices.map((device) => device.PathOnHost)),
    ],
  ];
}

function runtimeFacts(
  declared: DeclaredContainer,
  found: InspectedContainer,
  context: AspectContext,
): readonly Fact[] {
  const { Config, HostConfig } = found;
  return [
    ["runtime", declared.runtime, HostConfig.Runtime],
    ...environmentFacts(declared.env, Config.Env),
    ["published ports", declaredPorts(declared), publishedPorts(found)],
    ["image", context.imageId, found.Image],
    ["health check", declaredHealth(declared), foundHealth(Config.Healthcheck)],
  ];
}

function resourceFacts(
  declared: DeclaredContainer,
  { HostConfig }: InspectedContainer,
): readonly Fact[] {
  return [
    ["memory", memoryText(declared.memory), memoryText(HostConfig.Memory / bytesPerMiB)],
    ["CPU cores", cpuText(declared.cpus), cpuText(HostConfig.NanoCpus / 1e9)],
    [
      "shared memory",
      declared.shm_size === undefined ? undefined : memoryText(declared.shm_size),
      memoryText(HostConfig.ShmSize / bytesPerMiB),
    ],
    ["tmpfs", mapText(declared.tmpfs), mapText(HostConfig.Tmpfs)],
    [
      "limits",
      optionalText(declared.ulimit.map(({ name, soft, hard }) => `${name} ${soft}:${hard}`)),
      setText(HostConfig.Ulimits.map(({ Name, Soft, Hard }) => `${Name} ${Soft}:${Hard}`)),
    ],
    ["init process", declared.init?.toString(), String(HostConfig.Init ?? false)],
  ];
}

function networkAndMountFacts(
  declared: DeclaredContainer,
  { HostConfig, NetworkSettings, Mounts }: InspectedContainer,
  context: AspectContext,
): readonly Fact[] {
  const networks =
    declared.networks_advanced.length > 0
      ? declared.networks_advanced.map(({ name }) => name)
      : declared.network_mode === undefined
        ? []
        : [declared.network_mode];
  const mounts = declaredMounts(declared, context.moduleFolder);
  return [
    ["networks", optionalText(networks), setText(Object.keys(NetworkSettings.Networks))],
    ["processes", namespaceText(declared.pid_mode), namespaceText(HostConfig.PidMode)],
    ["shared memory with", namespaceText(declared.ipc_mode), namespaceText(HostConfig.IpcMode)],
    ["mounts", mountsText(mounts), mountsText(foundMounts(Mounts, mounts))],
  ];
}

function processFacts(
  declared: DeclaredContainer,
  { Config, HostConfig }: InspectedContainer,
): readonly Fact[] {
  return [
    [
      "log",
      declared.log_driver && `${declared.log_driver} ${mapText(declared.log_opts)}`,
      `${HostConfig.LogConfig.Type} ${mapText(HostConfig.LogConfig.Config)}`,
    ],
    ...declared.labels.map(
      ({ label, value }) => [`label ${label}`, value, Config.Labels[label] ?? "not set"] as const,
    ),
    ["entry point", wordsText(declared.entrypoint) || undefined, wordsText(Config.Entrypoint)],
    ["command", wordsText(declared.command) || undefined, wordsText(Config.Cmd)],
    [
      "stop timeout",
      secondsText(declared.stop_timeout),
      secondsText(Config.StopTimeout) ?? "not set",
    ],
  ];
}

/** Joins items in alphabetical order, because neither Terraform nor the engine preserves an order. */
function setText(items: readonly string[]): string {
  return items.length === 0 ? "none" : [...new Set(items)].sort().join(", ");
}

function mapText(map: Readonly<Record<string, string>>): string {
  return setText(Object.entries(map).map(([key, value]) => `${key}=${value}`));
}

/** Joins a command line, and hides the key of the model control API, because aspects are reported. */
function wordsText(words: readonly string[]): string {
  return words
    .map((word) => word.replace(new RegExp(`(:${modelControlHeader}=).+$`, "s"), "$1…"))
    .join(" ");
}

function optionalText(items: readonly string[]): string | undefined {
  return items.length === 0 ? undefined : setText(items);
}

function secondsText(count: number | null | undefined): string | undefined {
  return count == null ? undefined : `${count} s`;
}

function memoryText(mebibytes: number): string {
  return mebibytes === 0 ? "no limit" : `${mebibytes} MiB`;
}

function cpuText(cores: number): string {
  return cores === 0 ? "no limit" : String(cores);
}

function capabilityText(add: readonly string[], drop: readonly string[]): string {
  const named = (names: readonly string[]) =>
    setText(names.map((name) => name.toUpperCase().replace(/^CAP_/, "")));
  return `drop ${named(drop)}; add ${named(add)}`;
}

function accessText(readOnly: boolean): string {
  return readOnly ? "read-only" : "writable";
}

/** `no-new-privileges` and `no-new-privileges:true` are equal; so are `=` and `:` after the name. */
function securityOption(option: string): string {
  return option === "no-new-privileges" ? `${option}:true` : option.replace("=", ":");
}

function restartText(policy: string, retries: number): string {
  const name = policy === "" ? "no" : policy;
  return name === "on-failure" && retries > 0 ? `${name}:${retries}` : name;
}

function gpuText(count: number | undefined, ids: readonly string[]): string {
  if (ids.length > 0) return `device ${[...ids].sort().join(",")}`;
  return count === -1 ? "all" : `${count ?? 0} GPUs`;
}

function declaredGpus({ gpus, device_requests }: DeclaredContainer): string {
  const requests = device_requests.map(({ count, device_ids }) => gpuText(count, device_ids));
  if (gpus === undefined || gpus === "") return setText(requests);
  const devices = /(?:^|[",])device=([^"]+)/.exec(gpus)?.[1];
  const count = gpus === "all" ? -1 : Number(/(?:^|count=)(\d+)/.exec(gpus)?.[1]);
  return setText([...requests, gpuText(count, devices?.split(",") ?? [])]);
}

function requestedGpus({ DeviceRequests }: InspectedContainer["HostConfig"]): string {
  return setText(DeviceRequests.map(({ Count, DeviceIDs }) => gpuText(Count, DeviceIDs)));
}

/** Variables that control GPU access; only their values are reported. */
const reportedVariable = /^(?:NVIDIA_|CUDA_)/;

/** Compares declared variables. Undeclared ones may come from the image. */
function environmentFacts(declared: readonly string[], found: readonly string[]): readonly Fact[] {
  const values = new Map(found.map(parseVariable));
  return declared.map((line) => {
    const [name, value] = parseVariable(line);
    const actual = values.get(name);
    // values filled in by Terraform may be secrets, so only their presence is compared
    const isSecret = value.includes("${");
    const isReported = actual === value || reportedVariable.test(name);
    const text = isSecret ? "set" : isReported ? actual : "another value";
    return [name, isSecret ? "set" : value, actual === undefined ? "not set" : (text ?? "")];
  });
}

function parseVariable(line: string): readonly [string, string] {
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

/** Published ports of a running container; configured ports of a stopped one. */
function publishedPorts({ State, HostConfig, NetworkSettings }: InspectedContainer): string {
  const bindings = State.Status === "running" ? NetworkSettings.Ports : HostConfig.PortBindings;
  const published = Object.entries(bindings).flatMap(([port, list]) =>
    list
      // a port on all addresses is listed for IPv4 and IPv6
      .filter(({ HostIp }) => HostIp !== "::")
      .map(({ HostIp, HostPort }) => `${HostIp || "0.0.0.0"}:${HostPort || "any port"} → ${port}`),
  );
  return setText(HostConfig.PublishAllPorts ? [...published, "all exposed ports"] : published);
}

function declaredHealth({ healthcheck: [check] }: DeclaredContainer): string | undefined {
  if (check === undefined) return undefined;
  const { test, interval, timeout, start_period, retries = 0 } = check;
  return healthText(
    test,
    [interval, timeout, start_period].map((duration) => goSeconds(duration) ?? 0),
    retries,
  );
}

function foundHealth(check: InspectedContainer["Config"]["Healthcheck"]): string {
  if (check == null) return "none";
  const { Test, Interval, Timeout, StartPeriod, Retries } = check;
  return healthText(
    Test,
    [Interval, Timeout, StartPeriod].map((nanoseconds) => nanoseconds / 1e9),
    Retries,
  );
}

function healthText(test: readonly string[], times: readonly number[], retries: number): string {
  const [interval, timeout, start] = times;
  return `${test.join(" ")} (every ${interval} s, timeout ${timeout} s, ${retries} retries, ${start} s to start)`;
}

/** Namespace mode; only sharing with the host or another container is distinguished. */
function namespaceText(mode = ""): string {
  return /^(?:host|container:)/.test(mode) ? mode : "its own";
}

interface Mount {
  readonly target: string;
  readonly source: string;
  readonly readOnly: boolean;
}

const unknownFolder = "a folder of the host";
const anonymousVolume = "an anonymous volume";

function declaredMounts(declared: DeclaredContainer, moduleFolder: string): readonly Mount[] {
  const folder = (path: string) => {
    const known = evaluatePath(path, moduleFolder);
    return known === undefined ? unknownFolder : posix.normalize(known);
  };
  return [
    ...declared.volumes.map(({ container_path, host_path, volume_name, read_only }) => ({
      target: container_path,
      source: host_path === undefined ? (volume_name ?? anonymousVolume) : folder(host_path),
      readOnly: read_only,
    })),
    ...declared.mounts
      .filter(({ type }) => type !== "tmpfs")
      .map(({ target, source, type, read_only }) => ({
        target,
        source: source === undefined ? anonymousVolume : type === "bind" ? folder(source) : source,
        readOnly: read_only,
      })),
  ];
}

function foundMounts(
  mounts: InspectedContainer["Mounts"],
  declared: readonly Mount[],
): readonly Mount[] {
  return mounts.flatMap(({ Type, Name, Source, Destination, RW }) => {
    const known = declared.find(({ target }) => target === Destination);
    // undeclared volumes may come from the image; undeclared folders of the host are reported
    if (Type === "tmpfs" || (Type !== "bind" && known === undefined)) return [];
    const isUnknown = known?.source === unknownFolder || known?.source === anonymousVolume;
    const source = isUnknown ? known.source : (Name ?? Source);
    return [{ target: Destination, source, readOnly: !RW }];
  });
}

function mountsText(mounts: readonly Mount[]): string {
  const texts = mounts.map(
    ({ target, source, readOnly }) => `${target} of ${source}${readOnly ? ", read-only" : ""}`,
  );
  return texts.length === 0 ? "none" : texts.sort().join("; ");
}
