import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { readEnvironment } from "../../artefact/artefact.ts";
import type { InspectedContainer } from "../../artefact/docker-inspect.ts";
import type { TunableKind } from "../../contract/deployed-model-config.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { modelRepositoryMount } from "../../contract/server/server-env.ts";
import { modelControlKeyVariable } from "../../contract/triton-flags.ts";
import { nextModelName, tritonModelName } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import { externalDataOf } from "../../model-tools/files/external-data.ts";
import { sidecarPath } from "../../model-tools/files/model-info.ts";
import { checkVersion, type DeployedVersion } from "../../model-tools/repository/deploy-version.ts";
import { Docker } from "../host/docker-command.ts";
import { environmentFile } from "../shared/artefact.ts";

export interface DeployToHostOptions {
  readonly environment: string;
  readonly spec: ModelSpec;
  readonly modelKind: TunableKind;
  /** ONNX file of the new version. */
  readonly file: string;
  /** Maximum time until a Triton server serves the version. */
  readonly timeoutSeconds: number;
}

export interface DeployedToHost extends DeployedVersion {
  /** Services that run the model themselves and keep version 1. */
  readonly unchanged: readonly string[];
}

/** One-shot container that applies the configuration of a model to a Triton server of the host. */
interface Target {
  /** `http://<container>:<port>` of the Triton server. */
  readonly url: string;
  readonly key: string | undefined;
  /** Embed image, which runs the job. */
  readonly image: string;
  readonly network: string;
  /** Volume for versions of the model, mounted under both of its names; undefined if the environment was deployed without it. */
  readonly volume: string | undefined;
  /** Volume with the configuration of the model, in which the job writes the fingerprint. */
  readonly configuration: string | undefined;
  /** Volume or folder of the host with version 1, whose fingerprint is restored after a failure. */
  readonly firstVersion: string | undefined;
}

/** Maximum time to copy the file to the host, in milliseconds. */
const copyMs = 3_600_000;

/** Adds a version of a model to the Triton servers of a deployed environment, in a container on its Docker host. */
export async function deployToHost(options: DeployToHostOptions): Promise<DeployedToHost> {
  const { environment: name, spec, modelKind, file } = options;
  const { file: synthesized, displayPath } = environmentFile(name);
  const environment = readEnvironment(synthesized, displayPath);
  const { where, models, services } = environment;
  if (!/^(unix|ssh|tcp):/.test(where)) {
    throw new UserError(`${name}: must be on a Docker host, got ${where}`);
  }
  if (!models.some((served) => served.name === spec.name)) {
    const known = models.map((served) => served.name).join(", ");
    throw new UserError(`${name}: the model must be one of ${known}, got ${spec.name}`);
  }
  await checkVersion(spec, modelKind, file);
  const docker = new Docker(where);
  const model = tritonModelName(spec, modelKind);
  const targets = targetsOf(await containersOf(docker, name), model);
  const [first] = targets;
  if (first === undefined) {
    throw new UserError(
      `${name}: no Triton server on ${where} serves ${model}; deploy the environment`,
    );
  }
  const { volume } = first;
  if (volume === undefined) {
    throw new UserError(
      `${name}: was not deployed with modelVersions by this version, so that ${model} has no folders of versions; set tritonOnnx.modelVersions and deploy it again`,
    );
  }
  const deployed = await runJob(docker, { ...options, model, targets, job: { ...first, volume } });
  const changed = targets.map(({ url }) => new URL(url).hostname);
  const unchanged = services.filter(
    ({ name: service, backend, models: served }) =>
      backend !== "triton" && served.includes(spec.name) && !changed.includes(`${name}-${service}`),
  );
  return { ...deployed, unchanged: unchanged.map((service) => service.name) };
}

/** Containers of an environment, including those that have ended. */
async function containersOf(
  docker: Docker,
  environment: string,
): Promise<readonly InspectedContainer[]> {
  const label = `label=clipstack.environment=${environment}`;
  const ids = (await succeed(docker.run("ps", "--all", "--quiet", "--filter", label)))
    .split("\n")
    .filter((id) => id !== "");
  return docker.inspect(...ids);
}

function targetsOf(containers: readonly InspectedContainer[], model: string): readonly Target[] {
  return containers.flatMap(({ Image, Config }): readonly Target[] => {
    const [role, ...args] = Config.Cmd;
    const optionValue = (option: string) => args[args.indexOf(option) + 1];
    if (role !== "apply-config" || optionValue("--model") !== model) return [];
    if (!args.includes("--server")) return [];
    const url = optionValue("--server") ?? "";
    const triton = containers.find(({ Name }) => Name === new URL(url).hostname);
    if (triton === undefined) return [];
    const prefix = `${modelControlKeyVariable}=`;
    const folder = `${modelRepositoryMount}/${model}`;
    const mountOf = (path: string) => {
      const mount = triton.Mounts.find(({ Destination }) => Destination === path);
      return mount?.Name ?? mount?.Source;
    };
    return [
      {
        url,
        key: Config.Env.find((line) => line.startsWith(prefix))?.slice(prefix.length),
        image: Image,
        network: Object.keys(triton.NetworkSettings.Networks)[0] ?? "",
        volume: mountOf(nextModelName(folder)),
        configuration: mountOf(`${folder}/configs`),
        firstVersion: mountOf(`${folder}/1`),
      },
    ];
  });
}

interface Job extends DeployToHostOptions {
  readonly model: string;
  readonly targets: readonly Target[];
  readonly job: Target & { readonly volume: string };
}

async function runJob(
  docker: Docker,
  { file, model, targets, timeoutSeconds, job }: Job,
): Promise<DeployedVersion> {
  const folder = `${modelRepositoryMount}/${model}`;
  const upload = "/tmp/model.onnx";
  const others = externalDataOf(file);
  const nested = others.find((name) => name !== basename(name));
  if (nested !== undefined) {
    throw new UserError(`${file}: must have its external data beside it, got '${nested}'`);
  }
  const id = (
    await succeed(
      docker.runWith(
        // not on the command line, which other users can read
        { env: job.key === undefined ? {} : { [modelControlKeyVariable]: job.key } },
        ...["create", "--user=0:0", "--cap-drop=ALL", "--security-opt=no-new-privileges"],
        ...[`--network=${job.network}`, `--volume=${job.volume}:${folder}`],
        ...(job.firstVersion === undefined ? [] : [`--volume=${job.firstVersion}:${folder}/1:ro`]),
        // each server has a volume of its own
        ...targets.flatMap(({ configuration }, index) =>
          configuration === undefined
            ? []
            : [`--volume=${configuration}:${folder}/configs/${index}`],
        ),
        ...(job.key === undefined ? [] : [`--env=${modelControlKeyVariable}`]),
        ...[job.image, "deploy-version", "--folder", folder, "--file", upload],
        ...["--servers", targets.map(({ url }) => url).join(",")],
        ...["--timeout-seconds", String(timeoutSeconds)],
      ),
    )
  ).trim();
  try {
    await succeed(docker.runWith({ timeoutMs: copyMs }, "cp", file, `${id}:${upload}`));
    for (const name of others) {
      const source = join(dirname(file), name);
      await succeed(
        docker.runWith({ timeoutMs: copyMs }, "cp", "-L", source, `${id}:/tmp/${name}`),
      );
    }
    const sidecar = sidecarPath(file);
    if (existsSync(sidecar)) await succeed(docker.run("cp", sidecar, `${id}:${upload}.json`));
    const limitMs = (targets.length * timeoutSeconds + 120) * 1000;
    const output = await succeed(docker.runWith({ timeoutMs: limitMs }, "start", "--attach", id));
    return JSON.parse(output) as DeployedVersion;
  } finally {
    await docker.run("rm", "--force", id);
  }
}

/** Output of a command. */
async function succeed(result: ReturnType<Docker["run"]>): Promise<string> {
  const { exitCode, stdout, stderr } = await result;
  if (exitCode === 0) return stdout;
  throw new UserError(stderr.trim().split("\n").at(-1) || `docker exited with code ${exitCode}`);
}
