import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, posix, resolve } from "node:path";
import { type Command, Option } from "commander";
import { z } from "zod";
import { type Artefact, readArtefact } from "../../artefact/artefact.ts";
import type { ContainerBlock } from "../../artefact/container-workload.ts";
import type { DeclaredContainer } from "../../artefact/declared-container.ts";
import { evaluatePath } from "../../artefact/terraform-text.ts";
import type { Workload } from "../../artefact/workload.ts";
import { requiredDriver } from "../../constructs/checks/drivers.ts";
import { engineCacheMount } from "../../contract/model-config.ts";
import { openclipVitB32 } from "../../contract/model-signature.ts";
import { embedPort, hostPorts, tritonPorts } from "../../contract/ports.ts";
import { modelRepositoryMount } from "../../contract/server-env.ts";
import { parseTritonArgs } from "../../contract/triton-flags.ts";
import { UserError } from "../../contract/user-error.ts";
import { synthesizedFile } from "../artefact.ts";
import { project } from "../project.ts";
import { shellQuote } from "../shell-quote.ts";

/** One container with all services of an environment: what a marketplace asks for, and `docker run` takes. */
export interface LaunchSpec {
  /** Bumped when a field changes meaning. */
  readonly schema: 1;
  readonly environment: string;
  readonly image: string;
  /** How that image is made, from the project's folder. */
  readonly build: readonly string[];
  readonly services: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Variables whose values are not for a file: they are taken from where `docker run` is typed. */
  readonly secrets: readonly string[];
  readonly ports: readonly LaunchPort[];
  /** Absent on CPU. */
  readonly gpu?: {
    /** As Docker is asked for it. */
    readonly request: string;
    readonly name: string;
    readonly vramMiB: number;
  };
  readonly volumes: readonly LaunchVolume[];
  /** Further options of `docker run`, as one word each or as a name and a value. */
  readonly options: readonly (readonly string[])[];
  /** What differs from the environment, or must be seen to. */
  readonly notes: readonly string[];
}

export interface LaunchPort {
  readonly service: string;
  readonly protocol: string;
  readonly container: number;
  readonly host: number;
  /** `127.0.0.1`: programs on the host, and tunnels to it. `0.0.0.0`: everybody. */
  readonly address: string;
}

export interface LaunchVolume {
  /** Name of a volume, or a folder of the host. */
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
}

/** The services of the all-in-one image, and what each listens on in it: inner port of its own image → port there. */
const places: Readonly<Record<string, ReadonlyMap<number, number>>> = {
  embed: new Map([[embedPort, hostPorts.embed]]),
  "triton-onnx": tritonPlaces(hostPorts.tritonOnnx),
  "triton-trt": tritonPlaces(hostPorts.tritonTrt),
};

function tritonPlaces(there: typeof hostPorts.tritonOnnx | typeof hostPorts.tritonTrt) {
  return new Map(
    (["http", "grpc", "metrics"] as const).map((name) => [tritonPorts[name], there[name]]),
  );
}

/** Environment of the embed server that says where it stands; in the image it stands elsewhere. */
const ofItsContainer: ReadonlySet<string> = new Set(["PORT", "MODEL_PATH", "TRITON_GRPC_URLS"]);

const stopSeconds = 60;

export interface LaunchOptions {
  /**
   * Name of the all-in-one image.
   *
   * @default clipstack/all-in-one:0.1.0, with `-emulator` for that engine
   */
  readonly image?: string;
  /** Folder that model configurations are written to, where the settings change them. */
  readonly configs?: string;
}

/** A model configuration that is not the one in the image. */
export interface ChangedConfig {
  readonly model: string;
  readonly variant: string;
  readonly text: string;
}

/**
 * The launch specification of a synthesized environment.
 *
 * @param json - Text of `cdk.tf.json`.
 * @throws {UserError} why it cannot be one container.
 */
export function launchSpec(
  artefact: Artefact,
  json: string,
  options: LaunchOptions = {},
): { readonly spec: LaunchSpec; readonly changed: readonly ChangedConfig[] } {
  const { environment, workloads } = artefact;
  const containers = requireOneContainer(artefact);
  const moduleFolder = dirname(resolve(artefact.file));
  const tritons = workloads.filter(({ service }) => service.kind === "triton");
  const engine = same(environment.name, tritons, "engine", ({ service }) => service.server);
  const variant = same(environment.name, tritons, "variant", variantOf);
  const embed = workloads.find(({ service }) => service.kind === "embed");
  const bases = tritonBases(json);
  const tritonImage = same(environment.name, tritons, "image", (workload) =>
    bases.get(containers.get(workload)?.image ?? ""),
  );
  const embedImage =
    embed === undefined ? undefined : pulledImages(json).get(containers.get(embed)?.image ?? "");
  const weights = weightsFolder(artefact, moduleFolder);
  const secrets = embed?.env.API_KEY === undefined ? [] : ["API_KEY"];
  const changed = changedConfigs(tritons, artefact);
  const image =
    options.image ?? `clipstack/all-in-one:${version}${engine === "emulator" ? "-emulator" : ""}`;
  const configVolumes =
    options.configs === undefined
      ? []
      : changed.map(({ model }) => ({
          source: join(resolve(options.configs ?? ""), model),
          target: `${modelRepositoryMount}/${model}/configs`,
          readOnly: true,
        }));
  const engines = `${environment.name}-engines`;
  const keepsEngines = workloads.some(({ volumes }) =>
    volumes.some(({ containerPath }) => containerPath === engineCacheMount),
  );
  const declared = [...containers.values()].map((block) => block.declared);
  const gpus = new Set(
    declared.map(({ gpus: request }) => request).filter((it) => it !== undefined),
  );
  const [request] = gpus;
  return {
    changed,
    spec: {
      schema: 1,
      environment: environment.name,
      image,
      build: buildCommand(
        image,
        engine,
        tritonImage,
        variant,
        embedImage ?? `clipstack/embed:${embed?.env.EXECUTION_PROVIDER === "cuda" ? "gpu" : "cpu"}`,
        weights,
      ),
      services: workloads.map(({ service }) => service.name),
      env: {
        SERVICES: workloads.map(({ service }) => service.name).join(","),
        ...(variant === undefined ? {} : { MODEL_CONFIG_NAME: variant }),
        ...embedEnv(embed, tritons),
        ...gpuEnv(declared),
      },
      secrets,
      ports: workloads.flatMap((workload) => portsOf(workload, containers.get(workload)?.declared)),
      gpu:
        request === undefined || environment.gpu === undefined
          ? undefined
          : { request, name: environment.gpu.name, vramMiB: environment.gpu.vramMiB },
      volumes: [
        ...(keepsEngines ? [{ source: engines, target: engineCacheMount, readOnly: false }] : []),
        ...(weights === undefined
          ? []
          : weightsTargets(workloads).map((target) => ({
              source: weights,
              target,
              readOnly: true,
            }))),
        ...configVolumes,
      ],
      options: runOptions(declared),
      notes: [
        ...cudaNotes(embed, engine, tritonImage),
        ...(keepsEngines
          ? [
              `TensorRT's engines are kept on the volume ${engines} and have the weights inside: with other weights remove it first ('docker volume rm ${engines}')`,
            ]
          : []),
        ...notesOf(artefact, weights, secrets, changed, configVolumes.length > 0),
      ],
    },
  };
}

/** What keeps an environment from being one container of the all-in-one image. */
function requireOneContainer({
  environment: { name, gpu },
  workloads,
  containers,
}: Artefact): ReadonlyMap<Workload, ContainerBlock> {
  const no = (reason: string) =>
    new UserError(
      `${name} cannot be one container: ${reason}; launch-spec is for single-gpu, or one like it`,
    );
  const found = new Map<Workload, ContainerBlock>();
  for (const workload of workloads) {
    const { service, kind, address } = workload;
    if (kind === "deployment") throw no(`${service.name} is a Deployment of a cluster`);
    if (gpu !== undefined && gpu.count > 1) throw no(`it runs on ${gpu.count} GPUs of one host`);
    if (places[service.name] === undefined) {
      throw no(
        `the all-in-one image runs ${Object.keys(places).join(", ")}, and it has ${service.name}`,
      );
    }
    const block = containers.find((it) => it.address === address);
    if (block !== undefined) found.set(workload, block);
  }
  const requests = new Set([...found.values()].map((it) => it.declared.gpus ?? "none"));
  requests.delete("none");
  if (requests.size > 1)
    throw no(`its services ask for different GPUs (${[...requests].join(", ")})`);
  return found;
}

/** What the Tritons have in common: the image has one of it. */
function same<T extends string>(
  environment: string,
  tritons: readonly Workload[],
  what: string,
  of: (workload: Workload) => T | undefined,
): T | undefined {
  const values = new Set(tritons.map(of).filter((value) => value !== undefined));
  if (values.size <= 1) return [...values][0];
  throw new UserError(
    `${environment} cannot be one container: its Tritons have different settings (${what}: ${[...values].join(", ")}), and the all-in-one image has one`,
  );
}

function variantOf({ command }: Workload): string | undefined {
  return command.length === 0 ? undefined : parseTritonArgs(command.slice(1))["model-config-name"];
}

const body = z.record(z.string(), z.looseObject({}));
const document = z.object({ resource: z.record(z.string(), body).default({}) });

function resourcesIn(json: string) {
  return document.parse(JSON.parse(json)).resource;
}

const dockerImage = z.object({
  name: z.string(),
  build: z.object({ build_args: z.record(z.string(), z.string()).default({}) }).optional(),
});

/** Names of images that can be pulled: of one that the host builds, only Terraform knows the name. */
function pulledImages(json: string): ReadonlyMap<string, string> {
  return imagesWith(json, ({ name, build }) => (build === undefined ? name : undefined));
}

/** What stands for each Triton in the image: one that is pulled, or the base of one that is built. */
function tritonBases(json: string): ReadonlyMap<string, string> {
  return imagesWith(json, ({ name, build }) =>
    build === undefined ? name : build.build_args.TRITON_IMAGE,
  );
}

function imagesWith(
  json: string,
  of: (image: z.infer<typeof dockerImage>) => string | undefined,
): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(resourcesIn(json).docker_image ?? {}).flatMap(([id, image]) => {
      const name = of(dockerImage.parse(image));
      return name === undefined ? [] : [[`docker_image.${id}`, name] as const];
    }),
  );
}

/** The version folder of every model that is served; one folder with weights is mounted at all of them. */
function weightsTargets(workloads: readonly Workload[]): readonly string[] {
  const models = workloads.map(({ service: { backend, model } }) =>
    backend === "triton" ? undefined : model,
  );
  return [...new Set(models)].flatMap((model) =>
    model === undefined ? [] : [`${modelRepositoryMount}/${model}/1`],
  );
}

/** The folder of the host with the weights; nothing where the image has them. */
function weightsFolder(artefact: Artefact, moduleFolder: string): string | undefined {
  const targets = weightsTargets(artefact.workloads);
  const mount = artefact.workloads
    .flatMap(({ volumes }) => volumes)
    .find(({ containerPath }) => targets.includes(containerPath));
  if (mount === undefined) return undefined;
  const file = artefact.containers
    .flatMap(({ declared }) => declared.upload)
    .find(({ source }) => source?.endsWith(".onnx"))?.source;
  const folder = mount.hostPath ?? (file === undefined ? undefined : posix.dirname(file));
  const known = folder === undefined ? undefined : evaluatePath(folder, moduleFolder);
  if (known === undefined) {
    throw new UserError(
      `${artefact.environment.name}: only Terraform knows what is mounted at ${mount.containerPath}: set weights to image`,
    );
  }
  return posix.normalize(known);
}

/** Model configurations of the settings that differ from those in the repository, which are in the image. */
function changedConfigs(
  tritons: readonly Workload[],
  { containers }: Artefact,
): readonly ChangedConfig[] {
  return tritons.flatMap((workload) => {
    const { model } = workload.service;
    const variant = variantOf(workload) ?? "";
    const text = containers
      .filter(({ declared }) => declared.command.includes(model))
      .flatMap(({ declared }) => declared.upload)
      .find((upload) => upload.file.endsWith(".pbtxt"))?.content;
    if (text === undefined) return [];
    const file = join(project, "model_repository", model, "configs", `${variant}.pbtxt`);
    const there = readFileSync(file, "utf8");
    // the name of an engine in the cache is the deployment's own
    const meaning = (of: string) =>
      of
        .split("\n")
        .filter((line) => line.trim() !== "" && !/^\s*#|trt_engine_cache_prefix/.test(line))
        .join("\n");
    if (meaning(text) === meaning(there)) return [];
    return [{ model, variant, text: text.replace(/\$\{[^{}]*\}_?/g, "") }];
  });
}

function embedEnv(
  embed: Workload | undefined,
  tritons: readonly Workload[],
): Readonly<Record<string, string>> {
  if (embed === undefined) return {};
  const own = Object.fromEntries(
    Object.entries(embed.env).filter(
      ([name]) => !ofItsContainer.has(name) && name !== "API_KEY" && !name.startsWith("NVIDIA_"),
    ),
  );
  const upstreams = (embed.env.TRITON_GRPC_URLS ?? "").split(",").filter((target) => target !== "");
  if (upstreams.length === 0) {
    const path = `${modelRepositoryMount}/${openclipVitB32.name}/1/model.onnx`;
    return { ...own, MODEL_PATH: path };
  }
  const local = upstreams.map((target) => {
    const [host = "", port = ""] = target.split(":");
    const triton = tritons.find(({ name, aliases }) => name === host || aliases.includes(host));
    const there = places[triton?.service.name ?? ""]?.get(Number(port));
    if (there === undefined) {
      throw new UserError(
        `TRITON_GRPC_URLS names '${target}', which is no Triton of the environment`,
      );
    }
    return `127.0.0.1:${there}`;
  });
  return { ...own, TRITON_GRPC_URLS: local.join(",") };
}

/** NVIDIA's variables: the same in all containers, or another one of them is refused above. */
function gpuEnv(declared: readonly DeclaredContainer[]): Readonly<Record<string, string>> {
  const lines = declared.flatMap(({ env }) => env.filter((line) => line.startsWith("NVIDIA_")));
  return Object.fromEntries(
    [...new Set(lines)].map((line) => [line.split("=")[0] ?? "", line.replace(/^[^=]*=/, "")]),
  );
}

function portsOf(
  { service }: Workload,
  declared: DeclaredContainer | undefined,
): readonly LaunchPort[] {
  return (declared?.ports ?? []).map(({ internal, external, ip }) => {
    const host = external ?? internal;
    const endpoint = service.endpoints.find(({ url }) => url.endsWith(`:${host}`));
    return {
      service: service.name,
      protocol: endpoint?.protocol ?? "tcp",
      container: places[service.name]?.get(internal) ?? internal,
      host,
      address: ip,
    };
  });
}

/** What all containers have, and of what each has its own, the sum. */
function runOptions(declared: readonly DeclaredContainer[]): readonly (readonly string[])[] {
  const [first] = declared;
  if (first === undefined) return [];
  const tmpfsMiB = declared
    .flatMap(({ tmpfs }) => Object.values(tmpfs))
    .map((text) => Number(/size=(\d+)m/.exec(text)?.[1] ?? 0))
    .reduce((sum, size) => sum + size, 0);
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
    ...(sharedMiB > 0 ? [["--shm-size", `${sharedMiB}m`]] : []),
    ...[...limits.values()].map(({ name, soft, hard }) => ["--ulimit", `${name}=${soft}:${hard}`]),
    ["--stop-timeout", String(stopSeconds)],
    ...(first.log_driver === undefined ? [] : [["--log-driver", first.log_driver]]),
    ...Object.entries(first.log_opts).map(([key, value]) => ["--log-opt", `${key}=${value}`]),
  ];
}

function buildCommand(
  image: string,
  engine: string | undefined,
  tritonImage: string | undefined,
  variant: string | undefined,
  embedImage: string,
  weights: string | undefined,
): readonly string[] {
  const base = engine === "tritonserver" ? tritonImage : embedImage;
  const args = {
    EMBED_IMAGE: embedImage,
    TRITON_SERVER: engine ?? "emulator",
    ...(base === undefined ? {} : { TRITON_IMAGE: base }),
    ...(variant === undefined ? {} : { MODEL_CONFIG_NAME: variant }),
    ...(weights === undefined ? { WEIGHTS: "image" } : {}),
  };
  return [
    "docker",
    "build",
    "--file",
    "model_repository/image/Dockerfile.all-in-one",
    ...Object.entries(args).flatMap(([name, value]) => ["--build-arg", `${name}=${value}`]),
    "--tag",
    image,
    "model_repository",
  ];
}

/** CUDA that ONNX Runtime's provider in the embed image is built for: Dockerfile.gpu. */
const providerCuda = 12;

/** The image has the CUDA of its Triton, and the embed server's ONNX Runtime wants its own. */
function cudaNotes(
  embed: Workload | undefined,
  engine: string | undefined,
  tritonImage: string | undefined,
): readonly string[] {
  if (embed?.env.EXECUTION_PROVIDER !== "cuda" || engine !== "tritonserver") return [];
  const cuda = tritonImage === undefined ? undefined : requiredDriver(tritonImage)?.cuda;
  if (cuda === providerCuda) return [];
  return [
    `the embed server computes with CUDA ${providerCuda}, and ${tritonImage ?? "the Triton image"} has ${cuda === undefined ? "its own" : `CUDA ${cuda}`}: it may end at start for lack of libraries; set embed.backend: triton, which has the Triton beside it compute`,
  ];
}

function notesOf(
  { workloads }: Artefact,
  weights: string | undefined,
  secrets: readonly string[],
  changed: readonly ChangedConfig[],
  mounted: boolean,
): readonly string[] {
  const open = workloads.some(({ service }) => service.authorization !== undefined);
  const anonymous = workloads.some(({ env }) => env.ALLOW_ANONYMOUS === "true");
  return [
    ...(weights === undefined
      ? []
      : [
          `the weights are the folder ${weights} of the host; where that is not to be had, set weights: image and build again`,
        ]),
    ...(secrets.length > 0 ? [`${secrets.join(", ")} must be set where docker run is typed`] : []),
    ...(!open && anonymous
      ? [
          "every port is for the host alone, and the embed server asks for no key: on a marketplace publish none, and use 'ssh -L'; for an open port set embed.expose: all-interfaces, which asks for a key",
        ]
      : []),
    ...changed.map(({ model, variant }) =>
      mounted
        ? `${model}: configs/${variant}.pbtxt of the settings is mounted over the image's`
        : `${model}: the settings change its configuration, and the image has the repository's: --configs <folder> writes configs/${variant}.pbtxt and mounts it`,
    ),
  ];
}

const { version }: { readonly version: string } = JSON.parse(
  readFileSync(new URL("../package.json", import.meta.url), "utf8"),
);

/** The `docker run` of a specification, one word each. */
export function dockerRun(spec: LaunchSpec): readonly (readonly string[])[] {
  return [
    ["docker", "run"],
    ["--detach"],
    ["--name", spec.environment],
    ...spec.options,
    ...(spec.gpu === undefined ? [] : [["--gpus", spec.gpu.request]]),
    ...Object.entries(spec.env).map(([name, value]) => ["--env", `${name}=${value}`]),
    ...spec.secrets.map((name) => ["--env", name]),
    ...spec.ports.map(({ address, host, container }) => [
      "--publish",
      `${address}:${host}:${container}`,
    ]),
    ...spec.volumes.map(({ source, target, readOnly }) => [
      "--volume",
      `${source}:${target}${readOnly ? ":ro" : ""}`,
    ]),
    [spec.image],
  ];
}

/** For a POSIX shell, one option a line. */
export function shellText(words: readonly (readonly string[])[]): string {
  return words.map((part) => part.map(shellQuote).join(" ")).join(" \\\n  ");
}

function specText(spec: LaunchSpec): string {
  const line = (name: string, values: readonly string[]) =>
    values.length === 0 ? [] : [`${name}:`, ...values.map((value) => `  ${value}`), ""];
  const portText = ({ service, protocol, container, host, address }: LaunchPort) =>
    `${container}  ${service} ${protocol}, ${address === "127.0.0.1" ? "for the host alone" : "open"}, at ${address}:${host}`;
  return [
    `${spec.environment} as one container`,
    "",
    ...line("image", [spec.image, `made by: ${spec.build.map(shellQuote).join(" ")}`]),
    ...line(
      "GPU",
      spec.gpu === undefined
        ? []
        : [`1 × ${spec.gpu.name}, ${spec.gpu.vramMiB} MiB; --gpus ${spec.gpu.request}`],
    ),
    ...line("ports of the container", spec.ports.map(portText)),
    ...line("environment", [
      ...Object.entries(spec.env).map(([name, value]) => `${name}=${value}`),
      ...spec.secrets.map((name) => `${name}=… (a secret)`),
    ]),
    ...line(
      "volumes",
      spec.volumes.map(
        ({ source, target, readOnly }) => `${target} of ${source}${readOnly ? ", read-only" : ""}`,
      ),
    ),
    ...line("to know", spec.notes),
    shellText(dockerRun(spec)),
  ].join("\n");
}

const formats = {
  text: specText,
  json: (spec: LaunchSpec) =>
    JSON.stringify({ ...spec, dockerRun: dockerRun(spec).flat() }, null, 2),
  "docker-run": (spec: LaunchSpec) => shellText(dockerRun(spec)),
} as const;

interface LaunchArguments {
  readonly format: keyof typeof formats;
  readonly image?: string;
  readonly configs?: string;
  readonly synth: boolean;
}

/** `clipstack launch-spec`: an environment as one container. */
export function registerLaunchSpec(program: Command): void {
  program
    .command("launch-spec")
    .argument("<environment>", "single-gpu, or one like it")
    .addOption(
      new Option("--format <format>", "what is printed")
        .choices(Object.keys(formats))
        .default("text"),
    )
    .option("--image <name>", "the all-in-one image, as the host pulls it")
    .option(
      "--configs <folder>",
      "where model configurations are written, and mounted from, when the settings change them",
    )
    .option("--no-synth", "take what lies in cdktf.out")
    .addHelpText(
      "after",
      `
Image, ports, environment, GPU and volumes are those of the synthesized environment. The 'docker run' is for a host with
Docker; a marketplace (Vast.ai, RunPod) asks for the same in a form of its own, and says which ports it publishes where.

Examples:
  $ npx clipstack launch-spec single-gpu
  $ npx clipstack launch-spec single-gpu --image ghcr.io/somebody/clipstack/all-in-one:0.1.0 --format json
  $ npx clipstack launch-spec single-gpu --format docker-run | sh

Exit codes: 0 printed, 2 wrong usage or settings, or it cannot be one container.`,
    )
    .action(print);
}

async function print(name: string, args: LaunchArguments): Promise<void> {
  const file = await synthesizedFile(name, args.synth);
  const artefact = { ...readArtefact(file.file, file.displayPath), file: file.file };
  const { spec, changed } = launchSpec(artefact, readFileSync(file.file, "utf8"), args);
  if (args.configs !== undefined) writeConfigs(resolve(args.configs), changed);
  // on stderr where stdout is for a program
  if (args.format !== "text") for (const note of spec.notes) console.error(`clipstack: ${note}`);
  console.log(formats[args.format](spec));
}

function writeConfigs(folder: string, changed: readonly ChangedConfig[]): void {
  try {
    for (const { model, variant, text } of changed) {
      mkdirSync(join(folder, model), { recursive: true });
      writeFileSync(join(folder, model, `${variant}.pbtxt`), text);
    }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new UserError(`--configs ${folder} cannot be written: ${code}`);
  }
}
