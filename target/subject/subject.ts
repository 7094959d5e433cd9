import { z } from "zod";
import { service, tritonServers } from "../../contract/environment.ts";

/** Descriptions of what a run used, as saved in its record. */

/** Where requests go: local processes, a deployed environment, or addresses given on the command line. */
export const targetKinds = ["simulation", "deployed", "addresses"] as const;
export type TargetKind = (typeof targetKinds)[number];

export const modelSubject = z.strictObject({
  /** Display name: `tiny`, `generated`, or a file name. */
  name: z.string(),
  /** Name of the model's spec; absent in older records, which are of openclip-vit-b32. */
  spec: z.string().optional(),
  /** Tower of the file; absent in older records, which are of images. */
  modality: z.enum(["image", "text"]).optional(),
  sha256: z.string().optional(),
  source: z.string().optional(),
  /** `random`: the embeddings are correct numerically but carry no meaning. */
  weights: z.string().optional(),
  architecture: z.string().optional(),
  seed: z.number().optional(),
  /** Precision, source file and tools of a prepared file, from its manifest. */
  precision: z.string().optional(),
  derivedFromSha256: z.string().optional(),
  toolVersions: z.record(z.string(), z.string()).optional(),
});
export type ModelSubject = z.infer<typeof modelSubject>;

/** Returns whether a file is a small generated one, because the generator does not know the architecture of the model. */
export function isStandIn({ architecture }: ModelSubject): boolean {
  return architecture === "stand-in";
}

export const environmentSubject = z.strictObject({
  name: z.string(),
  /** Docker endpoint or kubeconfig context of the environment. */
  where: z.string(),
  accelerator: z.enum(["gpu", "cpu"]),
  gpu: z.string().optional(),
  artefact: z.strictObject({
    file: z.string(),
    sha256: z.string(),
    /** Whether the file was changed after synthesis; it is verified as changed. */
    editedByHand: z.boolean(),
  }),
  services: z.array(
    z.strictObject({
      name: z.string(),
      kind: service.shape.kind,
      backend: service.shape.backend,
      /** Server of a deployed Triton: NVIDIA's server or the Triton emulator. */
      server: z.enum(tritonServers).optional(),
      resource: z.string(),
      processes: z.int().min(0),
      /** Declared limits of a container or pod: quantity by resource, such as `memory: 8Gi`. */
      limits: z.record(z.string(), z.string()).optional(),
    }),
  ),
  /** Model that the environment was compared with, if it is not the subject's. */
  model: modelSubject.optional(),
  /** Models that the environment was compared with, if it has several. */
  models: z.array(modelSubject).optional(),
  /** Intended differences between the run and the deployed environment. */
  notes: z.array(z.string()),
  seconds: z.number().min(0),
});
export type EnvironmentSubject = z.infer<typeof environmentSubject>;

/** Models of a run: the measured one first, then those with which only some environments were compared. */
export function modelsOf(
  model: ModelSubject,
  environments: readonly EnvironmentSubject[],
): readonly ModelSubject[] {
  const all = [model, ...environments.flatMap((own) => own.models ?? own.model ?? [])];
  const keyOf = ({ name, spec, modality, sha256 }: ModelSubject) =>
    [name, spec, modality, sha256].join(" ");
  return [...new Map(all.map((one) => [keyOf(one), one])).values()];
}

/** Machine of a run. Records of different machines are not compared. */
export const machineSubject = z.strictObject({
  cpu: z.string(),
  cores: z.int().min(1),
  memoryMiB: z.int().min(1),
  os: z.string(),
  node: z.string(),
  /** Frequency governor of the first core; absent if the kernel has none, as in most virtual machines. */
  governor: z.string().optional(),
  /** Limits of this process's control group; absent if it has none. */
  limits: z.strictObject({ cpus: z.number().optional(), memoryMiB: z.int().optional() }).optional(),
});
export type MachineSubject = z.infer<typeof machineSubject>;

/** Versions of a server's libraries, from its image or its package. */
export const software = z.strictObject({
  /** Release of NVIDIA's image, such as `26.07`. */
  tritonRelease: z.string().optional(),
  cuda: z.string().optional(),
  tensorrt: z.string().optional(),
  onnxRuntime: z.string().optional(),
});
export type Software = z.infer<typeof software>;

export const price = z.strictObject({
  usdPerHour: z.number().min(0),
  /** Date of the price, in the format of its source. */
  date: z.string(),
  /** Source of the price: the GPU catalogue, or `--price`. */
  source: z.string(),
});
export type Price = z.infer<typeof price>;

/** What was measured: servers, hardware, price and environments. */
export const measuredSubject = z.strictObject({
  /** Name and version reported by the server of each service. */
  servers: z.array(
    z.strictObject({
      service: z.string(),
      name: z.string(),
      version: z.string(),
      /** Versions of its libraries, if known. */
      software: software.optional(),
    }),
  ),
  /** Version of the NVIDIA driver on the measured host. */
  driver: z.string().optional(),
  gpu: z
    .strictObject({ name: z.string(), count: z.int().min(1), vramMiB: z.int().optional() })
    .optional(),
  price: price.optional(),
  environments: z.array(environmentSubject),
});
export type MeasuredSubject = z.infer<typeof measuredSubject>;
