import { z } from "zod";

/**
 * Requirements of an environment for its host. `HostCheck` writes them into the artefact, and `clipstack doctor` checks the host
 * against them. They contain no secret and no value that only Terraform can resolve.
 */

/** Environment variable in which Terraform passes the requirements to `clipstack doctor`. */
export const hostRequirementsVariable = "CLIPSTACK_HOST_REQUIREMENTS";

/** Index of a GPU in `nvidia-smi`, or its UUID. */
const gpu = z.union([z.int().min(0), z.string().min(1)]);

/** Port that a service publishes. */
const port = z.strictObject({
  service: z.string().min(1),
  /** Setting of the port, relative to the service: `ports.http`. */
  setting: z.string().min(1),
  port: z.int().min(1).max(65_535),
  /** Bind address: `127.0.0.1` or `0.0.0.0`. */
  address: z.string().min(1),
});
export type RequiredPort = z.infer<typeof port>;

/** Disk space required in Docker's data folder. */
const disk = z.strictObject({
  /** Purpose of the disk space, for messages. */
  what: z.string().min(1),
  miB: z.int().min(0),
  /** Image that needs the disk space; nothing is needed if the host already has it. */
  image: z.string().optional(),
});
export type RequiredDisk = z.infer<typeof disk>;

/** Memory limit of a service. */
const memory = z.strictObject({ service: z.string().min(1), miB: z.int().min(1) });
export type RequiredMemory = z.infer<typeof memory>;

/** GPU driver that the CUDA version of an image requires. */
const driver = z.strictObject({
  image: z.string().min(1),
  /** Major version of CUDA in the image: `13`. */
  cuda: z.int().min(1),
  /** Oldest driver branch that supports it: `580`. */
  branch: z.int().min(1),
});
export type RequiredDriver = z.infer<typeof driver>;

/** File that a deployment reads. */
const file = z.strictObject({
  /** Absolute, or relative to the project. */
  path: z.string().min(1),
  /** Machine with the file: the Docker host, or the one that runs the deployment (`here`). */
  on: z.enum(["host", "here"]),
  /** Description for messages: `weights of openclip_vit_b32`. */
  what: z.string().min(1),
});
export type RequiredFile = z.infer<typeof file>;

/** Schema of the requirements. */
export const hostRequirements = z.strictObject({
  /** Version of the format, incremented when the meaning of a field changes. */
  schema: z.literal(1),
  environment: z.string().min(1),
  /** Docker endpoint: `ssh://user@host` or `unix:///path`; absent for the endpoint that the Docker CLI uses on this machine. */
  docker: z.string().min(1).optional(),
  /** kind cluster that the deployment creates, if any. */
  kind: z
    .strictObject({
      /** Name of the cluster. */
      cluster: z.string().min(1),
      /** Node image; absent for kind's default. */
      nodeImage: z.string().min(1).optional(),
      /** Images that must exist on this machine. */
      images: z.array(z.string().min(1)),
    })
    .optional(),
  /** GPUs; absent if the services run on the CPU. */
  gpu: z
    .strictObject({
      /** Key of the GPU catalogue, or the name of a declared GPU. */
      name: z.string().min(1),
      /** NVIDIA's name of the GPU. */
      label: z.string().min(1),
      count: z.int().min(1),
      vramMiB: z.int().min(1),
      /** CUDA compute capability: `8.9`. */
      computeCapability: z.string().min(1),
      /** Whether it is a data-centre GPU, on which the compatibility package in the images runs newer CUDA on an older driver. */
      dataCentre: z.boolean(),
      /** Peak of a declared GPU. */
      fp16DenseTflops: z.number().positive().optional(),
      uses: z.array(
        z.strictObject({
          service: z.string().min(1),
          gpus: z.array(gpu).min(1),
          /** Estimated GPU memory of the service on each of its GPUs, in MiB. */
          miB: z.int().min(0),
        }),
      ),
      drivers: z.array(driver),
    })
    .optional(),
  ports: z.array(port),
  /** Memory limits of the services; absent for a kind cluster. */
  memory: z.array(memory).optional(),
  /** Number of CPU cores that the host must have; absent if the settings have no `host.cores`. */
  cores: z.int().min(1).optional(),
  disk: z.array(disk),
  files: z.array(file),
  /** Whether models with random weights, which make embeddings meaningless, may be deployed. */
  allowRandomWeights: z.literal(true).optional(),
});
export type HostRequirements = z.infer<typeof hostRequirements>;
