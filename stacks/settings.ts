import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Document, LineCounter, parseDocument, visit } from "yaml";
import { z } from "zod";
import { optimumBatchSizes } from "../contract/deployed-model-config.ts";
import { gpuNames } from "../contract/gpus.ts";
import { openclipVitB32 } from "../contract/model-signature.ts";
import { hostPorts, kindPorts, type TritonPorts } from "../contract/ports.ts";
import { type RemovedRuleId, removedRules } from "../contract/removed-rules.ts";
import { ruleIds } from "../contract/rule-ids.ts";
import { UserError } from "../contract/user-error.ts";
import { issueLines, nearest } from "./settings-issues.ts";

/** Settings of the environments: one YAML file for each, one schema for each. */

/** A whole number in a range; both ends are part of the message. */
const integer = (min: number, max: number) => {
  const error = `must be ${min} to ${max}`;
  return z
    .int({ error: `must be a whole number, ${min} to ${max}` })
    .min(min, error)
    .max(max, error);
};
const word = <const T extends readonly [string, ...string[]]>(words: T) => z.enum(words);
/** A map of settings that differ by one of them. */
const oneOf = <const Key extends string>(key: Key, words: readonly string[]) => ({
  // of a word that is none of them; other mistakes speak for themselves
  error: (issue: { readonly code?: string; readonly discriminator?: string }) =>
    issue.code === "invalid_union" && issue.discriminator === key
      ? `must be one of ${words.join(", ")}`
      : undefined,
});
const text = (rule: string, pattern: RegExp) =>
  z.string({ error: `must be ${rule}` }).regex(pattern, `must be ${rule}`);

const accelerator = word(["gpu", "cpu"])
  .default("gpu")
  .describe("What the services compute on. `cpu` deploys the same services without a GPU.");
const expose = word(["loopback", "all-interfaces"])
  .default("loopback")
  .describe("Who reaches the ports: programs on the host and tunnels to it, or everybody.");
const embedExpose = expose.describe(
  "Who reaches the port: programs on the host and tunnels to it, or everybody who has the key, which Terraform then asks for (`TF_VAR_embed_api_key`).",
);
const port = integer(1, 65_535);
const gpuUuid = text(
  "an index or a UUID like 'GPU-8a56a4bc-184b-a047-2620-be16fdbd5b46'",
  /^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
);
const gpus = z
  .array(z.union([integer(0, 63), gpuUuid]))
  .min(1, "must list at least one GPU")
  .describe(
    "GPUs of the host: by index, as `nvidia-smi` counts them, or by UUID, as `nvidia-smi -L` names them. One way on a host.",
  );
const image = text("an image name like 'name:1.2' or 'name@sha256:…'", /^[\w./:@-]+$/);
const path = text("a path without '..' or spaces", /^(?!.*\.\.)[\w~@+=,./-]+$/);
const projectPath = text(
  "a path relative to the project, without '..' or spaces",
  /^(?![/~])(?!.*\.\.)[\w~@+=,./-]+$/,
);
const name = text(
  "lower-case letters, digits and '-', at most 40",
  /^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$/,
);
const gpuCount = integer(1, 16).describe("How many GPUs the host has.");

/** Where an image comes from: a name, or an object. */
const imageSource = (...baseImages: readonly [BaseImage, ...BaseImage[]]) =>
  z
    .union([
      image,
      z.discriminatedUnion(
        "source",
        [
          z.strictObject({ source: z.literal("pull"), name: image }),
          z.strictObject({
            source: z.literal("build"),
            buildArgs: z
              .strictObject(
                Object.fromEntries(baseImages.map((name) => [name, image.optional()])) as Record<
                  BaseImage,
                  z.ZodOptional<typeof image>
                >,
              )
              .optional(),
          }),
        ],
        oneOf("source", ["pull", "build"]),
      ),
    ])
    .transform((value) =>
      typeof value === "string" ? ({ source: "pull", name: value } as const) : value,
    );
type BaseImage = "NODE_IMAGE" | "CUDA_IMAGE" | "TRITON_IMAGE";
const buildOrPull =
  "`name:1.2` or `name@sha256:…`, or `{ source: pull, name: … }`; or `{ source: build }`: the host builds it";
const embedImage = imageSource("NODE_IMAGE", "CUDA_IMAGE")
  .prefault({ source: "build" })
  .describe(
    `The embed image: ${buildOrPull} from \`inference-image/\`, with \`buildArgs\` NODE_IMAGE and CUDA_IMAGE for other base images.`,
  );

const bucket = text("a bucket's name", /^[a-z0-9][\w.-]{1,61}[a-z0-9]$/);
const url = text("a URL without a user or a password", /^https?:\/\/[^\s/@?#]+(\/[^\s@]*)?$/);
/** Of something that is fetched: a signed address has a secret in its query, and Terraform's state would have it. */
const plainUrl = text(
  "a URL without a user, a password or a query",
  /^https?:\/\/[^\s/@?#]+(\/[^\s@?#]*)?$/,
);

/** Where Terraform keeps its state. A key for a credential is refused with a line of its own. */
const state = (environment: string) =>
  z
    .discriminatedUnion(
      "backend",
      [
        z.strictObject({
          backend: z.literal("local"),
          path: projectPath.default(`terraform.${environment}.tfstate`),
        }),
        z.strictObject({
          backend: z.literal("s3"),
          bucket,
          key: path.default(`clipstack/${environment}.tfstate`),
          region: text("a region, like 'eu-central-1'", /^[a-z0-9-]+$/),
          endpoint: url.optional(),
        }),
        z.strictObject({
          backend: z.literal("gcs"),
          bucket,
          prefix: path.default(`clipstack/${environment}`),
        }),
        z
          .strictObject({
            backend: z.literal("http"),
            address: url,
            lockAddress: url.optional(),
            unlockAddress: url.optional(),
          })
          .refine(
            ({ lockAddress, unlockAddress }) =>
              (lockAddress === undefined) === (unlockAddress === undefined),
            "must have both lockAddress and unlockAddress, or neither",
          ),
      ],
      oneOf("backend", ["local", "s3", "gcs", "http"]),
    )
    .prefault({ backend: "local" })
    .describe(
      [
        "Where Terraform keeps its state: `{ backend: local, path }` (relative to the project), `{ backend: s3, bucket, region, key, endpoint }`,",
        "`{ backend: gcs, bucket, prefix }` or `{ backend: http, address, lockAddress, unlockAddress }`. Credentials come from the environment.",
      ].join(" "),
    );

const removedIds = Object.keys(removedRules) as RemovedRuleId[];
const ruleId = z.enum([...ruleIds, ...removedIds], {
  error: ({ input }) => {
    const near = typeof input === "string" ? nearest(input, ruleIds) : undefined;
    const hint = near === undefined ? "" : `; did you mean '${near}'?`;
    return `must be the id of a rule (docs/rules/README.md${hint})`;
  },
});
const day = z.iso.date("must be a day, like '2027-01-31'");

/** What a review of a change asks for, and what it lets pass. */
const review = z
  .strictObject({
    p99GoalMilliseconds: integer(1, 600_000)
      .optional()
      .describe("Latency that 99 of 100 requests should stay below: a review compares with it."),
    waivers: z
      .array(
        z.strictObject({
          rule: ruleId.describe("Id of the rule that finds it."),
          address: text("an address or the path of a construct", /^\S(.*\S)?$/)
            .optional()
            .describe(
              "Address of a resource, or path of a construct, as `single-gpu/triton-onnx`, which covers all that is in it.",
            ),
          reason: text("a reason: one line of 10 to 300 characters", /^\S.{8,298}\S$/).describe(
            "Why it may stay; the review repeats it.",
          ),
          expires: day.describe("Last day on which the waiver holds; after it, it is a finding."),
        }),
      )
      .default([])
      .describe("Findings of a review that may stay for a while (docs/rules/README.md)."),
  })
  .prefault({})
  .describe("Read by `clipstack review`; it changes nothing that is deployed.");

/** A machine with Docker and NVIDIA GPUs. */
const host = (count: number) =>
  z
    .strictObject({
      docker: text(
        "'ssh://[user@]host[:port]' or 'unix:///path'",
        /^(ssh:\/\/([\w.-]+@)?[\w.-]+(:\d{1,5})?|unix:\/\/\/[\w./-]+)$/,
      )
        .default("unix:///var/run/docker.sock")
        .describe("Docker endpoint of the GPU host."),
      gpu: word(gpuNames).default("rtx-4080").describe("Kind of GPU, a key of the GPU catalogue."),
      count: gpuCount.default(count),
    })
    .prefault({});

/** A digest would be better than a tag, which can be moved, but a person can see from a tag what it is. */
const tritonImage = imageSource("TRITON_IMAGE")
  .prefault("nvcr.io/nvidia/tritonserver:26.07-py3")
  .describe(
    `Triton's image, read with the server \`tritonserver\`: ${buildOrPull} from \`Dockerfile.triton\`.`,
  );
const tritonService = {
  server: word(["tritonserver", "emulator"])
    .default("tritonserver")
    .describe(
      "`tritonserver`: NVIDIA's server. `emulator`: the embed image in its place, with the same options and ports; it computes on the CPU wherever it runs.",
    ),
  image: tritonImage,
  modelControl: word(["explicit", "none", "open"])
    .default("explicit")
    .describe(
      "`explicit`: another model configuration is loaded while Triton runs, and no request is lost; loading and unloading need a key that only the deployment has. `none`: another model configuration is another container. `open`: as `explicit`, without the key: every client may load and unload models.",
    ),
  maxQueueDelayMicroseconds: integer(0, 1_000_000)
    .default(openclipVitB32.maxQueueDelayMicroseconds)
    .describe("How long the batcher may hold a request back to fill a batch."),
  instancesPerGpu: integer(1, 16)
    .default(1)
    .describe("Execution instances on each GPU, each with its own copy of the model."),
  cudaGraphs: z
    .boolean()
    .default(false)
    .describe(
      "With TensorRT: replay the kernels of a batch as one CUDA graph; verify the deployed environment before it is trusted with this (docs/untested.md). `true` is refused where ONNX Runtime runs the model: its CUDA graphs can answer with the result of an earlier request.",
    ),
  allowUnauthenticated: z
    .boolean()
    .default(false)
    .describe("Allow `expose: all-interfaces` although Triton asks nobody who they are."),
};
const optimumBatchSize = z
  .literal(optimumBatchSizes)
  .default(16)
  .describe("Batch size that TensorRT's kernels are tuned for; every size up to 32 works.");
const weights = word(["volume", "host-path", "image"])
  .default("volume")
  .describe(
    "How the weights come to the servers. `volume`: a volume of the host, filled from the machine that deploys and checked. `host-path`: a folder of the host; other weights belong into another folder, by whose path TensorRT's engines are named. `image`: the images have them.",
  );
const tritonPorts = (ports: TritonPorts) =>
  z
    .strictObject({
      http: port.default(ports.http).describe("Open Inference Protocol over HTTP."),
      grpc: port.default(ports.grpc).describe("Open Inference Protocol over gRPC."),
      metrics: port
        .default(ports.metrics)
        .describe("Prometheus metrics, on the loopback interface only."),
    })
    .prefault({})
    .describe("Ports of the host.");
const triton = <More extends z.ZodRawShape>(
  ports: TritonPorts,
  defaultGpus: readonly number[],
  more: More,
) =>
  z
    .strictObject({
      enabled: z.boolean().default(true).describe("Leave the service out with `false`."),
      ...tritonService,
      ...more,
      ports: tritonPorts(ports),
      gpus: gpus.default([...defaultGpus]),
      expose,
    })
    .prefault({} as never);
const tritonOnnx = (defaultGpus: readonly number[]) =>
  triton(hostPorts.tritonOnnx, defaultGpus, {});
const tritonTrt = (defaultGpus: readonly number[]) =>
  triton(hostPorts.tritonTrt, defaultGpus, { optimumBatchSize });

const modelRepository = text("a path without '~' or spaces", /^[\w@+=,./-]+$/)
  .default("model_repository")
  .describe(
    "Model repository, which has the weights in `openclip_vit_b32/1`: relative to the project (`../weights` is beside it), or absolute. With the weights `host-path` on the host of Docker, else on the machine that deploys.",
  );
const upstream = word(["triton-onnx", "triton-trt"])
  .default("triton-onnx")
  .describe("The Triton that the gateway asks.");

export const singleGpuSettings = z.strictObject({
  accelerator,
  host: host(1),
  state: state("single-gpu"),
  review,
  modelRepository,
  weights,
  network: name.default("clipstack-single-gpu").describe("Docker network of the services."),
  embed: z
    .strictObject({
      enabled: z.boolean().default(true).describe("Leave the service out with `false`."),
      image: embedImage,
      port: port.default(hostPorts.embed).describe("Port of the host."),
      backend: word(["onnxruntime", "triton"])
        .default("onnxruntime")
        .describe(
          "`onnxruntime`: ONNX Runtime in the embed server. `triton`: gateway to a Triton.",
        ),
      upstream,
      gpus: gpus
        .max(1, "must list one GPU: ONNX Runtime in the embed server runs on one")
        .default([0])
        .describe("The GPU of ONNX Runtime, by index or by UUID."),
      expose: embedExpose,
    })
    .prefault({}),
  tritonOnnx: tritonOnnx([0]),
  tritonTrt: tritonTrt([0]),
});
export type SingleGpuSettings = z.infer<typeof singleGpuSettings>;

const fourGpus = [0, 1, 2, 3];

export const multiGpuSettings = z.strictObject({
  topology: word(["instance-group", "per-gpu"])
    .default("instance-group")
    .describe(
      "`instance-group`: one Triton for each backend, over all GPUs. `per-gpu`: one Triton for each GPU.",
    ),
  accelerator,
  host: host(4),
  state: state("multi-gpu-4x"),
  review,
  modelRepository,
  weights,
  network: name.default("clipstack-multi-gpu-4x").describe("Docker network of the services."),
  embed: z
    .strictObject({
      image: embedImage,
      port: port.default(hostPorts.embed).describe("Port of the host."),
      upstream: upstream.describe("The Triton that the gateway asks, with `instance-group`."),
      expose: embedExpose,
    })
    .prefault({}),
  tritonOnnx: tritonOnnx(fourGpus).describe("Read with `instance-group`."),
  tritonTrt: tritonTrt(fourGpus).describe("Read with `instance-group`."),
  perGpu: z
    .strictObject({
      backend: word(["onnxruntime", "tensorrt"])
        .default("onnxruntime")
        .describe("What runs the model."),
      ...tritonService,
      optimumBatchSize: optimumBatchSize.describe(
        "With the backend `tensorrt`: batch size that its kernels are tuned for.",
      ),
      gpus: gpus
        .max(16, "must list at most 16 GPUs")
        .default(fourGpus)
        .describe("One Triton for each; their ports are 8010-8012, 8020-8022, 8030-8032, …"),
      expose,
    })
    .prefault({})
    .describe("Read with `per-gpu`."),
});
export type MultiGpuSettings = z.infer<typeof multiGpuSettings>;

const quantities = (cpuMillicores: number, memoryMiB: number) =>
  z
    .strictObject({
      cpuMillicores: integer(1, 1_000_000)
        .default(cpuMillicores)
        .describe("CPU, in thousandths of a core."),
      memoryMiB: integer(1, 100_000_000).default(memoryMiB).describe("Memory, in MiB."),
    })
    .prefault({});

/** Where the image of a kind cluster comes from: nothing is pulled. */
const kindImage = z
  .union([
    image,
    z.discriminatedUnion(
      "source",
      [
        z.strictObject({
          source: z.literal("build"),
          buildArgs: z.strictObject({ NODE_IMAGE: image.optional() }).optional(),
        }),
        z.strictObject({ source: z.literal("local"), name: image }),
      ],
      oneOf("source", ["build", "local"]),
    ),
  ])
  .transform((value) =>
    typeof value === "string" ? ({ source: "local", name: value } as const) : value,
  )
  .prefault({ source: "build" })
  .describe(
    "The embed image, with the weights in it; it is copied into the node, and nothing is pulled. `{ source: build }`: this machine's Docker builds it as `clipstack/embed:k8s-cpu-…`, with `buildArgs` NODE_IMAGE for another base image. `name:1.2`, or `{ source: local, name: … }`: one that this machine's Docker has.",
  );

const drainBudget = z
  .strictObject({
    maxUnavailable: integer(0, 1_000)
      .optional()
      .describe("How many pods may be away; fewer than the fewest pods, where these are several."),
    minAvailable: integer(1, 1_000)
      .optional()
      .describe("How many pods must stay; fewer than the fewest pods."),
  })
  .default({ maxUnavailable: 1 })
  .describe("How many pods may be away (or must stay) when a node is drained: one of the two.");

/** A number of pods: as many at the least as at the most is a fixed number. */
const cpuScaling = (minReplicas: number, maxReplicas: number) => ({
  minReplicas: integer(1, 1_000).default(minReplicas).describe("The fewest pods."),
  maxReplicas: integer(1, 1_000)
    .default(maxReplicas)
    .describe("The most pods; with as many at the least there is no autoscaler."),
  cpuPercent: integer(1, 1_000)
    .default(60)
    .describe("Average CPU of the pods that is aimed at, in percent of what they request."),
  scaleDownWindowSeconds: integer(0, 3_600)
    .default(180)
    .describe("How long the load must be low before pods go."),
});

export const kindSettings = z.strictObject({
  state: state("kind-local"),
  review,
  cluster: z
    .strictObject({
      name: name.default("clipstack").describe("Its kubeconfig context is `kind-<name>`."),
      nodeImage: image.optional().describe("Default: the one that the installed kind came with."),
      kubeconfig: path.default("~/.kube/config").describe("File that kind adds the cluster to."),
      portMappings: z
        .array(
          z.strictObject({
            nodePort: port.describe("Port of the node."),
            hostPort: port.describe("Port of this machine."),
          }),
        )
        .min(1, "must map at least one port")
        .default([{ nodePort: kindPorts.nodePort, hostPort: kindPorts.host }])
        .describe("NodePorts that are reached on 127.0.0.1 of this machine."),
    })
    .prefault({}),
  namespace: name.default("clipstack").describe("Namespace of everything that is deployed."),
  deployWith: word(["kubernetes", "helm"])
    .default("kubernetes")
    .describe(
      "What declares the objects of the namespace. `kubernetes`: typed resources. `helm`: the project's chart, `helm/clipstack`. The objects are the same; a change makes the namespace anew.",
    ),
  metricsServer: z
    .strictObject({
      image: image
        .default("registry.k8s.io/metrics-server/metrics-server:v0.7.2")
        .describe("The node pulls it, unless it has it."),
    })
    .prefault({})
    .describe("metrics-server, which tells the autoscaler how much CPU the pods use."),
  embed: z
    .strictObject({
      image: kindImage,
      nodePort: port
        .default(kindPorts.nodePort)
        .describe("One that the cluster maps, 30000 to 32767."),
      resources: z
        .strictObject({ requests: quantities(250, 1_024), limits: quantities(1_000, 1_536) })
        .prefault({})
        .describe("Of one pod."),
    })
    .prefault({}),
  autoscaler: z
    .strictObject({
      ...cpuScaling(2, 6),
      maxReplicas: integer(1, 1_000)
        .default(6)
        .describe("The most pods; with one more for a rolling update they must fit the quota."),
    })
    .prefault({}),
  budget: drainBudget,
  quota: z
    .strictObject({
      requests: quantities(1_750, 7_168),
      limits: quantities(7_000, 10_752),
      pods: integer(1, 10_000).default(10).describe("Pods of the namespace."),
    })
    .prefault({})
    .describe("Of the namespace: the pods at their maximum, and one more during a rolling update."),
  limitRange: z
    .strictObject({
      defaultRequests: quantities(100, 128),
      defaultLimits: quantities(500, 512),
      max: quantities(2_000, 4_096),
    })
    .prefault({})
    .describe("What a container gets when it does not say, and the most it may say."),
});
export type KindSettings = z.infer<typeof kindSettings>;

const labelText = text(
  "a label or its value, at most 253 characters",
  /^[\w]([\w./-]{0,251}[\w])?$/,
);
const objectName = text(
  "a name of Kubernetes: lower-case letters, digits, '-' and '.', at most 253",
  /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/,
);
const sha256 = text("64 hexadecimal digits", /^[0-9a-f]{64}$/).describe(
  "Checksum of the weights (`model.onnx`).",
);

export const kubernetesSettings = z.strictObject({
  accelerator,
  state: state("k8s-gpu"),
  review,
  cluster: z
    .strictObject({
      kubeconfig: path.default("~/.kube/config").describe("File that has the context."),
      context: text("a context's name", /^[\w.:@/-]+$/)
        .default("gpu-cluster")
        .describe("Context of the kubeconfig; the current one is never taken."),
    })
    .prefault({})
    .describe("A cluster that is there already."),
  namespace: name.default("clipstack").describe("Namespace of everything that is deployed."),
  createNamespace: z
    .boolean()
    .default(true)
    .describe(
      "Make the namespace, and remove it with the environment; `false`: it is there. Turned to `false` later, the deployed namespace goes, with all that is in it.",
    ),
  imagePullSecret: objectName
    .optional()
    .describe("Secret of the namespace with which images are pulled."),
  nodePool: z
    .strictObject({
      gpu: word(gpuNames)
        .default("l4")
        .describe("Kind of GPU of the nodes, a key of the GPU catalogue."),
      nodes: integer(1, 1_000).default(4).describe("How many GPU nodes there are."),
      gpusPerNode: integer(1, 16).default(1).describe("How many GPUs each of them has."),
      runtimeClass: objectName
        .default("nvidia")
        .describe("RuntimeClass of pods with a GPU; `none` where the nodes' default is NVIDIA's."),
      selector: z
        .record(labelText, labelText)
        .default({})
        .describe("Labels of the nodes: pods with a GPU run nowhere else."),
      tolerations: z
        .array(
          z.strictObject({
            key: labelText.describe("Key of the taint."),
            operator: word(["Equal", "Exists"]).default("Exists").describe("How it is compared."),
            value: labelText.optional().describe("Value of the taint, with `Equal`."),
            effect: word(["NoSchedule", "PreferNoSchedule", "NoExecute"])
              .optional()
              .describe("Effect of the taint; every one without it."),
          }),
        )
        .default([{ key: "nvidia.com/gpu", operator: "Exists", effect: "NoSchedule" }])
        .describe("Taints of the nodes that pods with a GPU accept."),
    })
    .prefault({})
    .describe("GPU nodes of the cluster, read with the accelerator `gpu`."),
  model: z
    .discriminatedUnion(
      "weights",
      [
        z.strictObject({ weights: z.literal("image") }),
        z.strictObject({
          weights: z.literal("pvc"),
          claim: objectName,
          folder: path.optional(),
          sha256: sha256.optional(),
        }),
        z.strictObject({ weights: z.literal("init"), url: plainUrl, sha256 }),
      ],
      oneOf("weights", ["image", "pvc", "init"]),
    )
    .prefault({ weights: "image" })
    .describe(
      "How the weights come to the pods: `{ weights: image }`, the images have them; `{ weights: pvc, claim, folder, sha256 }`, a volume has them; `{ weights: init, url, sha256 }`, each pod fetches and checks them when it starts.",
    ),
  embed: z
    .strictObject({
      image: image
        .default("registry.example/clipstack/embed:0.1.0")
        .describe("The embed image, in a registry that the cluster pulls from."),
      backend: word(["triton", "onnxruntime"])
        .default("triton")
        .describe(
          "`triton`: gateway to the Tritons. `onnxruntime`: ONNX Runtime in the embed server, on one GPU a pod where there are GPUs.",
        ),
      service: word(["ClusterIP", "NodePort", "LoadBalancer"])
        .default("ClusterIP")
        .describe("Who reaches the embed server: the cluster, or others too."),
      keySecret: objectName
        .optional()
        .describe("Secret of the namespace whose entry `api-key` clients must send."),
      allowAnonymous: z
        .boolean()
        .default(false)
        .describe("Allow `NodePort` and `LoadBalancer` without a key."),
      resources: z
        .strictObject({ requests: quantities(500, 768), limits: quantities(2_000, 1_536) })
        .prefault({})
        .describe("Of one pod."),
      autoscaler: z
        .strictObject(cpuScaling(2, 6))
        .prefault({})
        .describe("On the CPU of the pods: needs metrics-server in the cluster."),
      budget: drainBudget,
    })
    .prefault({}),
  triton: z
    .strictObject({
      enabled: z.boolean().default(true).describe("Leave the service out with `false`."),
      server: tritonService.server,
      backend: word(["onnxruntime", "tensorrt"])
        .default("onnxruntime")
        .describe("What runs the model."),
      image: image
        .default("registry.example/clipstack/triton:26.07-1")
        .describe(
          "Triton's image, in a registry that the cluster pulls from: NVIDIA's, or this project's (`Dockerfile.triton`), which can have the weights.",
        ),
      gpusPerPod: integer(1, 16)
        .default(1)
        .describe("GPUs of one pod, all on one node; read with the accelerator `gpu`."),
      spareGpu: z
        .boolean()
        .default(false)
        .describe(
          "Whether a rolling update may start a pod before it stops another: `true` takes the GPUs of one pod more.",
        ),
      maxQueueDelayMicroseconds: tritonService.maxQueueDelayMicroseconds,
      instancesPerGpu: tritonService.instancesPerGpu,
      optimumBatchSize: optimumBatchSize.describe(
        "With the backend `tensorrt`: batch size that its kernels are tuned for.",
      ),
      cudaGraphs: tritonService.cudaGraphs,
      engineCache: z
        .strictObject({
          enabled: z
            .boolean()
            .default(false)
            .describe("Keep compiled engines on a volume; without it each new pod compiles."),
          accessMode: word(["ReadWriteOnce", "ReadWriteMany"])
            .default("ReadWriteMany")
            .describe("`ReadWriteOnce`: all pods are on one node."),
          storageClass: objectName
            .optional()
            .describe("StorageClass of the volume; the cluster's default without it."),
          sizeGiB: integer(1, 1_000).default(2).describe("Size of the volume."),
        })
        .prefault({})
        .describe("Read with the backend `tensorrt` on a GPU."),
      resources: z
        .strictObject({ requests: quantities(2_000, 4_096), limits: quantities(4_000, 8_192) })
        .prefault({})
        .describe("Of one pod."),
      autoscaler: z
        .strictObject({
          ...cpuScaling(2, 4),
          metric: word(["queue-time", "cpu"])
            .default("queue-time")
            .describe(
              "`queue-time`: how long requests wait in Triton's queue. `cpu`: for Tritons that compute on the CPU.",
            ),
          source: word(["keda", "prometheus-adapter"])
            .default("keda")
            .describe("Who tells Kubernetes of the queue time; it is in the cluster already."),
          prometheus: url
            .default("http://prometheus-operated.monitoring.svc:9090")
            .describe("Address of Prometheus in the cluster, which `keda` asks."),
          targetQueueMilliseconds: integer(1, 60_000)
            .default(50)
            .describe("Average queue time of a request that is aimed at."),
        })
        .prefault({}),
      budget: drainBudget,
    })
    .prefault({}),
  scraping: word(["service-monitor", "annotations", "none"])
    .default("service-monitor")
    .describe(
      "How Prometheus comes to the metrics: a ServiceMonitor (needs its operator), or annotations of the pods.",
    ),
  serviceMonitor: z
    .strictObject({
      labels: z
        .record(labelText, labelText)
        .default({})
        .describe(
          "Labels that Prometheus looks for, with `scraping: service-monitor`: of kube-prometheus-stack `release: <name of its Helm release>`.",
        ),
      intervalSeconds: integer(1, 300)
        .default(15)
        .describe(
          "How often the metrics are read, also through annotations: the queue time looks back four times as long, and one minute at the least.",
        ),
    })
    .prefault({})
    .describe("How the ServiceMonitors are found, and how often they are followed."),
  quota: z
    .strictObject({
      gpus: integer(1, 10_000).default(4).describe("GPUs; read with the accelerator `gpu`."),
      requests: quantities(14_000, 26_624),
      limits: quantities(35_000, 53_248),
      pods: integer(1, 10_000).default(14).describe("Pods of the namespace."),
    })
    .prefault({})
    .describe("Of the namespace: all pods at their maximum, and those that rolling updates add."),
});
export type KubernetesSettings = z.infer<typeof kubernetesSettings>;

/** The schema of each environment. */
export const stackSchemas = {
  "single-gpu": singleGpuSettings,
  "multi-gpu-4x": multiGpuSettings,
  "kind-local": kindSettings,
  "k8s-gpu": kubernetesSettings,
} as const;
export type EnvironmentName = keyof typeof stackSchemas;
export const environmentNames = Object.keys(stackSchemas) as EnvironmentName[];

/** Settings of all environments. */
export type AllSettings = {
  readonly [Name in EnvironmentName]: z.infer<(typeof stackSchemas)[Name]>;
};

export interface LoadedSettings {
  /** Of those environments whose file fits its schema; rules between settings are checks of the stacks. */
  readonly settings: Partial<AllSettings>;
  /** Every mistake of every file, ready to print. Empty: the settings are complete. */
  readonly mistakes: readonly string[];
}

/** Everything that is wrong with settings, one line each, ready to print. */
export class SettingsError extends UserError {
  override readonly name = "SettingsError";

  constructor(readonly lines: readonly string[]) {
    super(lines.join("\n"));
  }
}

/** Read the settings of all environments from `folder`, where `<environment>.settings.yaml` are. */
export function loadSettings(folder: string): LoadedSettings {
  const settings: Record<string, unknown> = {};
  const mistakes = environmentNames.flatMap((environment) => {
    const file = join(folder, `${environment}.settings.yaml`);
    try {
      settings[environment] = parseSettings(environment, file, readText(file));
      return [];
    } catch (error) {
      if (!(error instanceof SettingsError)) throw error;
      return error.lines;
    }
  });
  return { settings, mistakes };
}

function readText(file: string): string {
  let bytes: Buffer;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "unknown";
    throw new SettingsError([`${file}: cannot be read (${code})`]);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new SettingsError([`${file}: must be UTF-8 text`]);
  }
}

/**
 * Settings of one environment, with its defaults filled in.
 *
 * @param file - Name of the file, for messages.
 * @throws {SettingsError}
 */
export function parseSettings<Name extends EnvironmentName>(
  environment: Name,
  file: string,
  yaml: string,
): AllSettings[Name] {
  const input = parseYaml(file, yaml) ?? {};
  const schema = stackSchemas[environment];
  const result = schema.safeParse(input);
  if (!result.success) {
    const lines = issueLines(result.error.issues, schema, input);
    throw new SettingsError([`${file}:`, ...lines.map((line) => `  ${line}`)]);
  }
  return result.data as AllSettings[Name];
}

/** Of control characters, those that no line of text has. */
const binary = /[^\P{Cc}\t\n\r]/u;

/**
 * What a YAML file says, as plain values that JSON could say too.
 *
 * @throws {SettingsError}
 */
function parseYaml(file: string, yaml: string): unknown {
  if (binary.test(yaml)) {
    throw new SettingsError([`${file}: must be UTF-8 text, without control characters`]);
  }
  const lineCounter = new LineCounter();
  const document = parseDocument(yaml, { lineCounter, prettyErrors: false, logLevel: "error" });
  // a warning, such as an unknown tag, is about something that was not understood: a mistake as well
  const mistakes = [...document.errors, ...document.warnings, ...lostAliases(document)];
  if (mistakes.length > 0) {
    throw new SettingsError(
      mistakes.map(({ pos, message }) => {
        const { line, col } = lineCounter.linePos(pos[0]);
        return `${file}:${line}:${col}: ${message}`;
      }),
    );
  }
  try {
    const value: unknown = document.toJS();
    JSON.stringify(value); // throws where an alias is inside its own anchor
    return value;
  } catch {
    throw new SettingsError([`${file}: has aliases that grow without bound`]);
  }
}

/** Aliases without an anchor before them. */
function lostAliases(document: Document) {
  const found: { readonly pos: readonly [number]; readonly message: string }[] = [];
  visit(document, {
    Alias(_key, alias) {
      if (alias.resolve(document) !== undefined) return;
      const message = `alias '*${alias.source}' must come after its anchor '&${alias.source}'`;
      found.push({ pos: [alias.range?.[0] ?? 0], message });
    },
  });
  return found;
}
