import type { HostRequirements, RequiredPort } from "../../constructs/docker/host-requirements.ts";
import { modelCatalogue } from "../../contract/models/index.ts";
import { trainedWeightsCommand } from "../../contract/models/trained-weights.ts";
import { type HostVerdict, merged, noFindings, note, problem } from "../shared/host-verdict.ts";
import type { Problem } from "../shared/problem.ts";
import { isOlder } from "../shared/versions.ts";
import { judgeNvidia } from "./gpu-findings.ts";
import { coresNote } from "./host-cores.ts";
import { type HostFacts, isUnknown } from "./host-facts.ts";
import type { Listener, PublishedPort } from "./host-parse.ts";

type Needs = HostRequirements;

/** Compares a host with the requirements of an environment. */
export function judgeHost(needs: Needs, facts: HostFacts): HostVerdict {
  return merged(
    judgeEngine(facts),
    needs.gpu === undefined ? noFindings : judgeNvidia(needs.gpu, facts, isDeployed(needs, facts)),
    needs.kind === undefined ? noFindings : judgeKind(needs.kind, facts),
    judgeCores(needs, facts),
    judgeLimits(needs, facts),
    judgePorts(needs, facts),
    judgeDisk(needs, facts),
    judgeFiles(needs, facts),
    judgeRandomWeights(needs, facts),
  );
}

/** Oldest engine with the API of the Docker provider and with start periods of health checks. */
const oldestEngine = "20.10";

function judgeEngine({ engine }: HostFacts): HostVerdict {
  const problems: Problem[] = [];
  if (isOlder(engine.version, oldestEngine)) {
    problems.push({
      code: "docker-version",
      message: `Docker must be ${oldestEngine} or newer, got ${engine.version}`,
      fix: "upgrade Docker: docs.docker.com/engine/install",
    });
  }
  if (engine.osType !== "linux") {
    problems.push({
      code: "platform",
      message: `Docker must run Linux containers, got ${engine.osType} containers`,
      fix: "switch Docker to Linux containers, or set host.docker to a Linux machine",
    });
  } else if (!architectures.has(engine.architecture)) {
    problems.push({
      code: "platform",
      message: `the architecture of the host must be x86_64 or aarch64, got ${engine.architecture}`,
      fix: "set host.docker to another machine",
    });
  }
  return { problems, notes: [] };
}

/** Reports a host whose cores cannot preprocess as many images as its GPUs embed. */
function judgeCores({ gpu, ports }: Needs, { engine }: HostFacts): HostVerdict {
  const decodes = ports.some(({ service }) => service === "embed");
  const line = gpu && decodes ? coresNote(gpu, engine.cores) : undefined;
  return line === undefined ? noFindings : note(line);
}

/**
 * Compares the memory limits of the services, and the stated CPU cores, with the host. Limits are upper bounds, so a sum above the
 * memory of the host is a note; a single limit above it is a problem.
 */
function judgeLimits({ memory = [], cores }: Needs, { engine }: HostFacts): HostVerdict {
  const total = memory.reduce((sum, { miB }) => sum + miB, 0);
  const problems: Problem[] = [];
  const notes: string[] = [];
  const { memoryMiB } = engine;
  const largest = Math.max(0, ...memory.map(({ miB }) => miB));
  if (memoryMiB !== undefined && total > memoryMiB) {
    const isProblem = largest > memoryMiB;
    const limits = memory.map(({ service, miB }) => `${service} ${gibibytes(miB)}`).join(" + ");
    const message = `the host ${isProblem ? "must" : "should"} have ${gibibytes(isProblem ? largest : total)} GiB of memory for the limits of its containers, got ${gibibytes(memoryMiB)} (limits: ${limits})`;
    const fix =
      "use a host with more memory, disable a service, or set memoryMiB of the services to what they need";
    if (isProblem) problems.push({ code: "memory", message, fix });
    else notes.push(`${message}: ${fix}`);
  }
  if (cores !== undefined && engine.cores !== undefined && cores > engine.cores) {
    problems.push({
      code: "cores",
      message: `the host must have ${cores} CPU cores (host.cores), got ${engine.cores}`,
      fix: `set host.cores to ${engine.cores}`,
    });
  }
  return { problems, notes };
}

const architectures: ReadonlySet<string> = new Set(["x86_64", "amd64", "aarch64", "arm64"]);

/** Returns whether containers of the environment already run on the host; they use the GPU memory that is required. */
function isDeployed({ environment }: Needs, { published }: HostFacts): boolean {
  return published.some((it) => it.environment === environment);
}

function judgeKind(needs: NonNullable<Needs["kind"]>, { kind, images }: HostFacts): HostVerdict {
  const problems: Problem[] = [];
  const notes: string[] = [];
  if (kind?.kind === undefined) {
    problems.push({
      code: "kind",
      message: "kind must be installed on this machine",
      fix: "install kind: kind.sigs.k8s.io",
    });
  } else if (isUnknown(kind.kind)) {
    problems.push({
      code: "kind",
      message: `kind must work on this machine, but fails: ${kind.kind.unknown}`,
      fix: "reinstall kind: kind.sigs.k8s.io",
    });
  }
  for (const image of needs.images.filter((it) => !images.includes(it))) {
    problems.push({
      code: "image",
      message: `the image ${image} (embed.image) must exist on this machine, because it is not pulled`,
      fix: "build or pull the image, or set embed.image to { source: build }",
    });
  }
  if (kind?.clusters.includes(needs.cluster)) {
    notes.push(
      `the kind cluster '${needs.cluster}' already exists; the deployment fails unless this environment created it`,
    );
  }
  return { problems, notes };
}

/** Returns whether a container belongs to the environment; the node of a kind cluster is identified by its name. */
function isOwn({ environment, kind }: Needs, it: PublishedPort): boolean {
  return (
    it.environment === environment ||
    (kind !== undefined && it.container === `${kind.cluster}-control-plane`)
  );
}

function judgePorts(needs: Needs, facts: HostFacts): HostVerdict {
  const { listeners, published } = facts;
  const own = published.filter((it) => isOwn(needs, it));
  const others = published.filter((it) => !isOwn(needs, it));
  const used = new Set([
    ...[...published, ...needs.ports].map(({ port }) => port),
    ...(isUnknown(listeners) ? [] : listeners.map(({ port }) => port)),
  ]);
  const problems = needs.ports.flatMap((needed) => {
    const free = isUnknown(listeners) ? undefined : freePort(needed.port, used);
    const to = free === undefined ? "" : ` to a free port such as ${free}`;
    const choose = `or change ${needed.setting} of ${needed.service}${to}`;
    const inUse = (by: string, fix: string): Problem => ({
      code: "port",
      message: `port ${needed.port} of the host (${needed.service}, ${needed.setting}) must be free, in use by ${by}`,
      fix,
    });
    const container = others.find((it) => collides(needed, it));
    if (container !== undefined) {
      return [inUse(ownerText(container), `${freePortText(container)}, ${choose}`)];
    }
    // the engine listens on behalf of this environment's containers
    if (isUnknown(listeners) || own.some((it) => it.port === needed.port)) return [];
    const listener = listeners.find((it) => collides(needed, it));
    if (listener === undefined) return [];
    return listener.process === undefined
      ? [
          inUse(
            "another program",
            `find it with 'sudo ss -tlnp sport = :${needed.port}' and stop it, ${choose}`,
          ),
        ]
      : [inUse(listener.process, `stop it, ${choose}`)];
  });
  return {
    problems,
    notes: isUnknown(listeners)
      ? [`ports were compared only with those of containers: ${listeners.unknown}`]
      : [],
  };
}

/** Port of the same last digits that nothing uses. */
function freePort(port: number, used: ReadonlySet<number>): number | undefined {
  const candidates = Array.from({ length: 5 }, (_, index) => port + 10_000 * (index + 1));
  return candidates.find((candidate) => candidate <= 65_535 && !used.has(candidate));
}

function ownerText({ container, environment }: PublishedPort): string {
  return environment === undefined
    ? `container ${container}`
    : `container ${container} of ${environment}`;
}

function freePortText({ container, environment }: PublishedPort): string {
  return environment === undefined
    ? `stop it ('docker stop ${container}')`
    : `destroy ${environment} first ('npx cdktf destroy ${environment}')`;
}

/** Returns whether two addresses cannot both be bound. */
function collides(
  needed: RequiredPort,
  other: Pick<Listener | PublishedPort, "port" | "address">,
): boolean {
  if (needed.port !== other.port) return false;
  const every = (address: string) => address === "0.0.0.0" || address === "::" || address === "*";
  if (every(other.address)) return true;
  if (other.address.includes(":") && !other.address.startsWith("::ffff:")) return false;
  return every(needed.address) || other.address.replace("::ffff:", "") === needed.address;
}

function judgeDisk({ disk }: Needs, { freeMiB, images, engine }: HostFacts): HostVerdict {
  const needed = disk.filter(({ image }) => image === undefined || !images.includes(image));
  const total = needed.reduce((sum, { miB }) => sum + miB, 0);
  if (isUnknown(freeMiB)) {
    return note(`free space of Docker's data folder was not checked: ${freeMiB.unknown}`);
  }
  if (freeMiB >= total) return noFindings;
  return problem({
    code: "disk",
    message: `${engine.rootDir} must have ${gibibytes(total)} GiB free, got ${gibibytes(freeMiB)} (required: ${needed.map(({ what, miB }) => `${what} ${gibibytes(miB)}`).join(" + ")})`,
    fix: "free space ('docker system df' shows the usage, 'docker image prune -a' removes unused images), or move Docker's data-root",
  });
}

/** Formats MiB as GiB with one decimal. */
export function gibibytes(miB: number): string {
  return (miB / 1024).toFixed(1);
}

function missingFileFix(on: "here" | "host", path: string): string {
  if (on === "host") {
    return `copy it to the host, for example with 'scp', ${path.endsWith(".onnx") ? "or set weights: volume, which uploads it" : "readable for the user of the container (docs/deploy.md#tls-and-keys)"}`;
  }
  return path.endsWith("/model.onnx")
    ? "write it with 'npx clipstack model pull <model>' (docs/models.md names the command of each model), copy your own file to this path, or for tests 'npx clipstack model generate <model>' (a text tower with '--modality text') and allowRandomWeights: true"
    : "copy it to this path";
}

function judgeFiles({ files }: Needs, facts: HostFacts): HostVerdict {
  const problems: Problem[] = [];
  const notes: string[] = [];
  files.forEach(({ path, on, what }, index) => {
    const found = facts.files[index] ?? { unknown: "not read" };
    if (found === true) return;
    const location = on === "here" ? "on this machine" : "on the host";
    if (isUnknown(found)) notes.push(`${what} ${location} was not checked: ${found.unknown}`);
    else {
      problems.push({
        code: "file",
        message: `${what} must be ${location}, but ${path} does not exist`,
        fix: missingFileFix(on, path),
      });
    }
  });
  return { problems, notes };
}

/** A kind cluster on this machine is for tests, so random weights are only a note there. */
function judgeRandomWeights(
  { allowRandomWeights, kind }: Needs,
  { randomWeights: names = [] }: HostFacts,
): HostVerdict {
  if (names.length === 0) return noFindings;
  const message = `the weights of ${names.join(", ")} must be trained, but are random, so that embeddings are meaningless`;
  if (kind !== undefined || allowRandomWeights) return note(message);
  const commands = names.flatMap((name) => {
    const spec = modelCatalogue.get(name);
    const command = spec && trainedWeightsCommand(spec);
    return command === undefined ? [] : [`'npx clipstack model ${command} ${name}'`];
  });
  return problem({
    code: "random-weights",
    message,
    fix: `${commands.length === 0 ? "copy trained files" : `run ${commands.join(" and ")}`}, or set allowRandomWeights: true in the environment`,
  });
}
