import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { z } from "zod";
import {
  type Environment,
  environment,
  environmentOutput,
  type Service,
} from "../contract/environment.ts";
import { parseAs, parseJson } from "../contract/parse.ts";
import { UserError } from "../contract/user-error.ts";
import { type ContainerBlock, containerWorkload } from "./container-workload.ts";
import { declaredContainer } from "./declared-container.ts";
import { deploymentWorkload } from "./deployment-workload.ts";
import { type HelmRelease, helmReleases, renderRelease } from "./helm-template.ts";
import { type Declared, resourceAt } from "./service-ports.ts";
import {
  completeManifests,
  type DeclaredObject,
  type ManifestOptions,
  manifestsOf,
} from "./terraform-manifests.ts";
import { resolveText, type TerraformResources } from "./terraform-text.ts";
import { type VolumeContents, volumeContents } from "./volume-contents.ts";
import type { Workload } from "./workload.ts";

/**
 * Synthesized environment, read from its `cdk.tf.json` and not from the code that produced it, so that errors in the file
 * are found.
 */
export interface Artefact {
  readonly file: string;
  /** SHA-256 of the file, in hex. */
  readonly sha256: string;
  readonly environment: Environment;
  /** One for each service of the environment, in its order. */
  readonly workloads: readonly Workload[];
  /** Addresses of containers that implement no service; the local simulation does not run them. */
  readonly otherContainers: readonly string[];
  /** Those of `otherContainers` that fill a volume with known contents. */
  readonly volumeFillers: readonly string[];
  /** Every container of the file. */
  readonly containers: readonly ContainerBlock[];
  /** Every Kubernetes object that the file declares, as a typed resource or in a Helm release. */
  readonly objects: readonly DeclaredObject[];
}

const document = z.object({
  resource: z.record(z.string(), z.record(z.string(), z.unknown())).default({}),
  output: z.record(z.string(), z.object({ value: z.unknown() })).default({}),
});

/**
 * Reads a synthesized environment.
 *
 * @param file - Path of `cdk.tf.json`.
 */
export function readArtefact(file: string, displayPath = file): Artefact {
  const bytes = readBytes(file, displayPath);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  return {
    file: displayPath,
    sha256,
    ...parseArtefact(bytes.toString("utf8"), displayPath, dirname(resolve(file))),
  };
}

function readBytes(file: string, displayPath: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    const missing = error instanceof Error && "code" in error && error.code === "ENOENT";
    throw new UserError(`${displayPath}: ${missing ? "no such file" : String(error)}`);
  }
}

/** Services and endpoints of an environment, from its `cdk.tf.json` alone. */
export function readEnvironment(file: string, displayPath = file): Environment {
  const text = readBytes(file, displayPath).toString("utf8");
  return environmentOf(parseDocument(text, displayPath), displayPath);
}

/** Kubernetes objects that a synthesized environment declares, each after those that it depends on. */
export function readManifests(
  file: string,
  displayPath: string,
  options: ManifestOptions,
): readonly DeclaredObject[] {
  const { resource } = parseDocument(readBytes(file, displayPath).toString("utf8"), displayPath);
  return objectsOf(resource, displayPath, dirname(resolve(file)), options);
}

/** Helm releases of a synthesized environment. */
export function readReleases(file: string, displayPath: string): readonly HelmRelease[] {
  const { resource } = parseDocument(readBytes(file, displayPath).toString("utf8"), displayPath);
  return helmReleases(resource, displayPath, dirname(resolve(file)));
}

function objectsOf(
  resources: TerraformResources,
  displayPath: string,
  moduleFolder: string,
  options: ManifestOptions = {},
): readonly DeclaredObject[] {
  const releases = helmReleases(resources, displayPath, moduleFolder);
  return [
    ...manifestsOf(resources, displayPath, options),
    ...releases.flatMap((release) =>
      completeManifests(renderRelease(release, displayPath), displayPath, options),
    ),
  ];
}

/** Returns whether an environment contains a Helm release, which requires helm to read. */
export function needsHelm(environment: Environment): boolean {
  return environment.services.some(({ resources }) => resources.release !== undefined);
}

function parseDocument(json: string, displayPath: string): z.infer<typeof document> {
  return parseAs(document, parseJson(json, displayPath), displayPath);
}

function environmentOf({ output }: z.infer<typeof document>, displayPath: string): Environment {
  const value = output[environmentOutput]?.value;
  if (value === undefined) {
    throw new UserError(`${displayPath}: output.${environmentOutput} is missing`);
  }
  return parseAs(environment, value, `${displayPath}: output.${environmentOutput}.value`);
}

/** {@link readArtefact} on text. */
export function parseArtefact(
  json: string,
  displayPath: string,
  moduleFolder = ".",
): Omit<Artefact, "file" | "sha256"> {
  const parsed = parseDocument(json, displayPath);
  const { resource } = parsed;
  const described = environmentOf(parsed, displayPath);
  const containers = containersOf(resource, displayPath);
  const contents = volumeContents(containers);
  const objects = objectsOf(resource, displayPath, moduleFolder);
  const workloads = described.services.map((service) =>
    workloadOf(service, { resource, objects, containers }, contents, displayPath),
  );
  return {
    objects,
    environment: described,
    workloads,
    volumeFillers: [...new Set([...contents.values()].flatMap(({ filledBy }) => filledBy))],
    otherContainers: containers
      .map(({ address }) => address)
      .filter((address) => workloads.every((workload) => workload.address !== address)),
    containers,
  };
}

function containersOf(
  resource: TerraformResources,
  displayPath: string,
): readonly ContainerBlock[] {
  return Object.entries(resource.docker_container ?? {}).map(([id, body]) => {
    const address = `docker_container.${id}`;
    const resolved = resolveText(body, resource);
    return {
      address,
      declared: parseAs(declaredContainer, resolved, `${displayPath}: ${address}`),
      image: imageAddress(body),
    };
  });
}

/** `docker_image.x` of a container whose image is `${docker_image.x.image_id}`. */
function imageAddress(body: unknown): string | undefined {
  const image = z.object({ image: z.string() }).safeParse(body).data?.image ?? "";
  const id = /^\$\{docker_image\.([\w-]+)\.\w+\}$/.exec(image)?.[1];
  return id === undefined ? undefined : `docker_image.${id}`;
}

function workloadOf(
  service: Service,
  declared: Declared,
  contents: ReadonlyMap<string, VolumeContents>,
  displayPath: string,
): Workload {
  const { container, deployment, release } = service.resources;
  const [address, ...more] = [container, deployment, release].filter((it) => it !== undefined);
  if (address === undefined || more.length > 0) {
    throw new UserError(
      `${displayPath}: service '${service.name}' must name one container, one Deployment or one release in resources, got ${JSON.stringify(service.resources)}`,
    );
  }
  resourceAt(address, declared.resource, service, displayPath);
  const block = declared.containers.find((it) => it.address === address);
  if (block !== undefined) return containerWorkload(service, block, contents);
  const manifest = declared.objects.find(
    (it) =>
      it.address === address &&
      it.manifest.kind === "Deployment" &&
      (release === undefined || it.manifest.metadata.name === service.workload),
  )?.manifest;
  if (manifest === undefined) {
    throw new UserError(
      `${displayPath}: service '${service.name}' references Deployment '${service.workload ?? ""}' of ${address}, which does not contain it`,
    );
  }
  return deploymentWorkload(service, address, manifest, declared, displayPath);
}
