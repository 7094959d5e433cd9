import { z } from "zod";
import {
  accelerator as acceleratorProp,
  dockerEndpoint,
  exposure,
  gpuId,
  memoryLimitMiB,
  migProfile,
  port,
} from "../../constructs/checks/prop-types.ts";
import { acme } from "../../constructs/docker/caddyfile.ts";
import { gpuModel, gpuModelText, maxGpus } from "../../contract/gpus.ts";
import { modelConfigSettings } from "../../contract/model-config-settings.ts";
import { baselinePort, hostPorts, type TritonPorts } from "../../contract/ports.ts";
import { grpcTarget } from "../../contract/server/server-env.ts";
import { serverSettings } from "../../contract/server/server-settings.ts";
import { tracing as tracingSettings } from "../../contract/server/tracing.ts";
import { embedImage, proxy, tritonImage } from "./image-settings.ts";
import {
  downloadedFile,
  hostFile,
  integer,
  name,
  text,
  towerDownload,
  towerName,
} from "./setting-types.ts";

/** Settings shared by the stacks that deploy containers on a GPU host. */

export const accelerator = acceleratorProp
  .default("gpu")
  .describe("Hardware that the services run on. `cpu` deploys the same services without a GPU.");

const expose = exposure
  .default("loopback")
  .describe(
    "Network interfaces that the ports are bound to. `loopback`: reachable from the host and through SSH tunnels.",
  );

export const gpus = z
  .array(gpuId)
  .min(1, "must list at least one GPU")
  .max(maxGpus, `must list at most ${maxGpus} GPUs`)
  .describe(
    "GPUs of the host: by index, as `nvidia-smi` lists them, or by UUID, as `nvidia-smi -L` prints them, also of MIG devices (one per Triton server, with `host.migProfile`). All services of a host use the same form.",
  );

/** Host of a registry, with a port if it has one. */
const registryHost = /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?$/;

/** Machine with Docker and `count` NVIDIA GPUs by default. */
export const host = (count: number) =>
  z
    .strictObject({
      docker: dockerEndpoint
        .default("unix:///var/run/docker.sock")
        .describe("Docker endpoint of the GPU host."),
      gpu: gpuModel.prefault("rtx-4080").describe(`GPU model: ${gpuModelText}.`),
      count: integer(1, maxGpus).default(count).describe("Number of GPUs in the host."),
      migProfile: migProfile
        .optional()
        .describe("Profile of the MIG devices in `gpus`, whose memory the models must fit."),
      cores: integer(1, 1_024)
        .optional()
        .describe(
          "CPU cores of the host. Each container may then use all but one, so that the host stays reachable. Default: unknown; containers are limited only by their shares while all cores are busy.",
        ),
      registries: z
        .array(text("the host of a registry, like 'registry.mine:5000'", registryHost))
        .optional()
        .describe(
          "Registries that require credentials, such as `nvcr.io`: those of `docker login` on the deploying machine, which the host uses to pull; plan and state do not contain them.",
        ),
      proxy: proxy.describe(
        "Proxy through which the host downloads weights (`weights: url`). Docker itself pulls images through the proxy of its own configuration, and builds have `buildArgs`.",
      ),
    })
    .prefault({});

export const network = name
  .optional()
  .describe("Docker network of the services. Default: `clipstack-<environment>`.");

export const tracing = tracingSettings
  .optional()
  .describe("Export of OpenTelemetry traces (docs/tracing.md). Default: none.");

/** Name of an environment's Docker network. */
export function networkName(environment: string, network: string | undefined): string {
  return network ?? `clipstack-${environment}`;
}

export const weights = z
  .enum(["volume", "host-path", "image", "url"])
  .default("volume")
  .describe(
    "Source of the weights. `volume`: a volume of the host, copied from the deploying machine and verified by checksum. `host-path`: a folder of the host; put other weights into another folder, because TensorRT engines are named after its path. `image`: the images contain them. `url`: a volume of the host, which downloads the files in `downloads`.",
  );

export const downloads = z
  .record(towerName, z.strictObject({ ...towerDownload, tensorrt: downloadedFile.optional() }))
  .optional()
  .describe(
    "Files of each tower with `weights: url`: `{ 'siglip2-base-224:text': { url, sha256, tokenizer: { url, sha256 } } }`; with `tensorrt`, the file `model.trt-fp16.onnx`, which TensorRT 11 (Triton 26.06 and newer) requires. The host downloads each once and verifies it.",
  );

export const allowRandomWeights = z
  .boolean()
  .default(false)
  .describe(
    "Allow the deployment of models with random weights (`clipstack model generate`), for tests of servers and hosts: their embeddings are meaningless.",
  );

export const modelRepository = text("a path without '~' or spaces", /^[\w@+=,./-]+$/)
  .default("model_repository")
  .describe(
    "Model repository with the weights of each tower, for example in `dinov2_small/1`: an absolute path, or relative to the project (`../weights` is beside it). With the weights `host-path` on the Docker host, otherwise on the deploying machine.",
  );

export const upstream = z
  .enum(["triton-onnx", "triton-trt"])
  .default("triton-onnx")
  .describe("Triton that the gateway forwards to.");

const upstreams = z
  .array(
    z.strictObject({
      grpc: text("host:port, an IPv6 address in brackets", grpcTarget).describe(
        "Its gRPC port, such as `gpu-2.internal:8011` or `[fd00::2]:8011`.",
      ),
      tls: z
        .strictObject({
          ca: hostFile.describe("PEM file of the gateway's host: authorities of its certificate."),
          cert: hostFile.optional().describe("PEM file: the gateway's certificate chain."),
          key: hostFile.optional().describe("PEM file: the gateway's private key."),
          serverName: text("a host name", /^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/)
            .optional()
            .describe("Name in its certificate. Default: the host in `grpc`."),
        })
        .optional()
        .describe("TLS, equal for all upstreams. Default: clear text."),
    }),
  )
  .min(1, "must list at least one Triton server")
  .optional()
  .describe(
    "With a gateway: Triton servers on other hosts to which it also forwards, each with the same models (docs/guides/several-hosts.md).",
  );

const memoryMiB = memoryLimitMiB
  .optional()
  .describe(
    "Memory limit of the container in MiB. Default: from the models and the largest requests (docs/deploy.md).",
  );

const allowPlaintext = z
  .boolean()
  .default(false)
  .describe("Allow `expose: all-interfaces` without TLS: requests are sent in clear text.");

/** Settings of every embed server on a GPU host. */
export const embedService = {
  memoryMiB,
  upstreams,
  server: serverSettings.optional(),
  image: embedImage,
  port: port.default(hostPorts.embed).describe("Port of the host."),
  expose: expose.describe(
    "Network interfaces that the port is bound to. `all-interfaces` requires `tls`, and `keys` or an API key, which Terraform reads from `TF_VAR_embed_api_key`.",
  ),
  tls: z
    .strictObject({
      certificate: hostFile
        .optional()
        .describe("PEM file of the host: certificate chain of the server."),
      key: hostFile
        .optional()
        .describe("PEM file of the host: private key, readable for user 1000."),
      acme: acme
        .optional()
        .describe(
          "Instead of files: a certificate from an ACME server such as Let's Encrypt, for a proxy (Caddy) on the ports 80 and 443 of the host. With `expose: all-interfaces`, the embed server is reachable at `https://<domain>`, and Triton servers at their HTTP and gRPC ports + 1000, with TLS.",
        ),
    })
    .refine(
      ({ certificate, key, acme: proxy }) =>
        (certificate === undefined) === (key === undefined) &&
        (certificate === undefined) !== (proxy === undefined),
      "must have certificate and key, or acme",
    )
    .transform(({ certificate, key, acme: proxy }) => ({
      files: certificate === undefined || key === undefined ? undefined : { certificate, key },
      acme: proxy,
    }))
    .optional()
    .describe(
      "HTTPS. The folders of the files are mounted; replaced files are used within seconds. Default: plain HTTP.",
    ),
  keys: hostFile
    .optional()
    .describe(
      "JSON file of the host with the keys of clients (docs/embed-server.md), readable for user 1000 and mounted like those of `tls`. Terraform then needs no `embed_api_key`.",
    ),
  allowPlaintext,
};

const { modelVersions, optimumBatchSize, ...modelConfig } = modelConfigSettings.shape;

/** Settings of the models of every Triton server, on a host or in a cluster; a server with TensorRT has `optimumBatchSize` too. */
export { modelConfig, modelVersions, optimumBatchSize };

export const tritonKind = z
  .enum(["tritonserver", "emulator"])
  .default("tritonserver")
  .describe(
    "`tritonserver`: NVIDIA's server. `emulator`: the Triton emulator of the embed image, with the same options and ports; it always runs on the CPU.",
  );

export const baseline = z
  .enum(["none", "pytorch"])
  .default("none")
  .describe(
    `\`pytorch\`: also deploys a service of FastAPI, OpenCLIP and PyTorch with the image tower of the first model, on port ${baselinePort} of the loopback interface and on the first GPU of the other services, so that \`clipstack bench\` compares them (docs/guides/choosing-a-backend.md). For vision transformers of OpenCLIP in the catalogue; not with \`weights: image\`. It is not for production.`,
  );

/** Settings of a Triton server on a GPU host, without its ports and GPUs. */
export const tritonOnHost = {
  server: tritonKind,
  image: tritonImage,
  memoryMiB,
  allocator: z
    .enum(["glibc", "tcmalloc", "jemalloc"])
    .default("glibc")
    .describe(
      "Memory allocator of `tritonserver`. With glibc, a server that loads models or receives requests of many sizes may keep growing, because freed memory stays in the arenas of its threads; NVIDIA then recommends `tcmalloc` or `jemalloc`, which its image contains.",
    ),
  modelControl: z
    .enum(["explicit", "none", "open"])
    .default("explicit")
    .describe(
      "`explicit`: a changed model configuration is loaded while Triton runs; loading and unloading require a key that only the deployment has. `none`: a changed model configuration replaces the container. `open`: as `explicit`, but without the key: every client can load and unload models.",
    ),
  jpegDecoder: z
    .enum(["none", "dali"])
    .default("none")
    .describe(
      "`dali`: Triton also accepts JPEG files and decodes them with DALI, on the GPU if it has one; a gateway forwards the files as they are. `clipstack model pipeline` writes the required pipeline. Measure it first: it is not always faster (docs/dali.md).",
    ),
  ...modelConfig,
  allowUnauthenticated: z
    .boolean()
    .default(false)
    .describe("Allow `expose: all-interfaces` although Triton has no authentication."),
  allowPlaintext,
  expose,
};

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

const tritonService = <Gpus extends z.ZodType, More extends z.ZodRawShape>(
  ports: TritonPorts,
  gpus: Gpus,
  more: More,
) =>
  z
    .strictObject({
      enabled: z.boolean().default(true).describe("`false` omits the service."),
      ...tritonOnHost,
      ...more,
      ports: tritonPorts(ports),
      gpus,
    })
    .prefault({} as never);

export const tritonOnnx = <Gpus extends z.ZodType>(gpus: Gpus) =>
  tritonService(hostPorts.tritonOnnx, gpus, { modelVersions });

export const tritonTrt = <Gpus extends z.ZodType>(gpus: Gpus) =>
  tritonService(hostPorts.tritonTrt, gpus, { optimumBatchSize });
