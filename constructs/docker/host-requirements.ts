import { z } from "zod";

/**
 * What an environment needs of its host, as plain data: `HostCheck` writes it into the artefact, and `clipstack doctor`
 * judges a host by it. Nothing in it is a secret, or known to Terraform only.
 */

/** Variable in which Terraform hands the requirements to `clipstack doctor`. */
export const hostRequirementsVariable = "CLIPSTACK_HOST_REQUIREMENTS";

/** By index, as `nvidia-smi` counts, or by UUID. */
const gpu = z.union([z.int().min(0), z.string().min(1)]);

/** A port that a service publishes. */
const port = z.strictObject({
  service: z.string().min(1),
  /** Name of the setting, below the service: `ports.http`. */
  setting: z.string().min(1),
  port: z.int().min(1).max(65_535),
  /** Address that it is bound to: `127.0.0.1`, or `0.0.0.0`. */
  address: z.string().min(1),
});
export type RequiredPort = z.infer<typeof port>;

/** Something that takes room in Docker's folder. */
const disk = z.strictObject({
  what: z.string().min(1),
  miB: z.int().min(0),
  /** Image that takes the room. Where it is there already, nothing more is needed. */
  image: z.string().optional(),
});
export type RequiredDisk = z.infer<typeof disk>;

/** Driver that the CUDA of an image needs. */
const driver = z.strictObject({
  image: z.string().min(1),
  /** CUDA of the image, `13`. */
  cuda: z.int().min(1),
  /** Oldest branch of the driver that runs it: `580`. */
  branch: z.int().min(1),
});
export type RequiredDriver = z.infer<typeof driver>;

/** A file that a deployment reads. */
const file = z.strictObject({
  /** Absolute, or relative to the project. */
  path: z.string().min(1),
  /** On the host of Docker, or on the machine that deploys. */
  on: z.enum(["host", "here"]),
  /** What it is, for people: `weights of openclip_vit_b32`. */
  what: z.string().min(1),
});
export type RequiredFile = z.infer<typeof file>;

export const hostRequirements = z.strictObject({
  /** Bumped when a field changes meaning. */
  schema: z.literal(1),
  environment: z.string().min(1),
  /** Docker endpoint: `ssh://user@host`, `unix:///path`. Absent where it is this machine's, as the docker command line has it. */
  docker: z.string().min(1).optional(),
  /** Absent where no kind cluster is made. */
  kind: z
    .strictObject({
      /** Name of the cluster. */
      cluster: z.string().min(1),
      /** Absent where it is the one that kind came with. */
      nodeImage: z.string().min(1).optional(),
      /** Images that must be there. */
      images: z.array(z.string().min(1)),
    })
    .optional(),
  /** Absent where the services compute on CPU. */
  gpu: z
    .strictObject({
      /** Key of the GPU catalogue. */
      name: z.string().min(1),
      /** As NVIDIA writes it. */
      label: z.string().min(1),
      count: z.int().min(1),
      vramMiB: z.int().min(1),
      /** `8.9` */
      computeCapability: z.string().min(1),
      /** Data-centre GPUs run newer CUDA on an older driver, with the compatibility package that images have. */
      dataCentre: z.boolean(),
      uses: z.array(
        z.strictObject({
          service: z.string().min(1),
          gpus: z.array(gpu).min(1),
          /** Memory that it needs on each of them, as estimated. */
          miB: z.int().min(0),
        }),
      ),
      drivers: z.array(driver),
    })
    .optional(),
  ports: z.array(port),
  disk: z.array(disk),
  files: z.array(file),
});
export type HostRequirements = z.infer<typeof hostRequirements>;
