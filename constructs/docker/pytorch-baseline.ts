import { posix } from "node:path";
import { Construct } from "constructs";
import { z } from "zod";
import type { Container } from "#providers/docker/lib/container/index.js";
import { embedPaths } from "../../contract/embed-api.ts";
import type { Service } from "../../contract/environment.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { openClipTransformers } from "../../contract/models/trained-weights.ts";
import { baselinePort } from "../../contract/ports.ts";
import { modelPath } from "../../contract/repository-files.ts";
import { modelRepositoryMount } from "../../contract/server/server-env.ts";
import { limitsOf, pytorchMemoryMiB } from "../checks/container-limits.ts";
import { check, findingIf } from "../checks/findings.ts";
import type { GpuId } from "../checks/gpus.ts";
import { gpuId, port as portType } from "../checks/prop-types.ts";
import { checkedProps } from "../checks/props.ts";
import type { VramUse } from "../checks/vram.ts";
import { addressOf } from "../terraform/cdktf.ts";
import { nameInStack } from "../terraform/names.ts";
import { environmentList, labels, tmpfs } from "./container-defaults.ts";
import type { GpuHost } from "./gpu-host.ts";
import { gpuRequest } from "./gpu-request.ts";
import { bindAddress } from "./host-plan.ts";
import type { ModelWeights } from "./model-weights.ts";
import { serverContainer } from "./server-container.ts";
import type { ServerImage } from "./server-image.ts";

export interface PytorchBaselineProps {
  readonly host: GpuHost;
  /** Image built from `bench/baselines/pytorch/`. */
  readonly image: ServerImage;
  /** Weights of the other services; the baseline loads the image tower of the first model. */
  readonly weights: ModelWeights;
  /** GPU of the host, by index or by UUID. Ignored if the host's accelerator is `cpu`. */
  readonly gpus: readonly GpuId[];
  /**
   * Host port, on the loopback interface only.
   *
   * @default 8006
   */
  readonly port?: number;
}

/** Time limit for accepted requests when the service stops. */
const graceSeconds = 30;

const tmpMiB = 256;

/** Time limit for importing PyTorch, loading the model and creating the CUDA context. */
const loadSeconds = 120;

/** Baseline that the other services are compared with: FastAPI, OpenCLIP and PyTorch in a container, without authentication. */
export class PytorchBaseline extends Construct {
  /** Entry of the environment output. */
  readonly service: Service;
  /** Spec of the served model. */
  readonly models: readonly ModelSpec[];
  /** Underlying container. For anything the props do not cover, use `container.addOverride()`. */
  readonly container: Container;

  constructor(scope: Construct, id: string, given: PytorchBaselineProps) {
    super(scope, id);

    const props = checkedProps(
      this,
      given,
      { gpus: z.array(gpuId), port: portType.optional() },
      { gpus: [0] },
    );
    const { host, image, weights, port = baselinePort } = props;
    const name = nameInStack(this);
    const gpus = host.accelerator === "gpu" ? props.gpus : [];
    this.models = weights.models.slice(0, 1);
    const [spec] = this.models;
    check(this, () => baselineFindings(weights));
    const models = this.models.map((model) => ({ ...model, towers: imageTowers(model) }));
    const memoryMiB = pytorchMemoryMiB(models, tmpMiB);
    const use: VramUse = { service: name, backend: "pytorch", instances: 1, models };
    host.require(
      {
        ...(gpus.length > 0 && { gpus: { ids: gpus, use } }),
        ports: [{ service: name, prop: "port", port, expose: "loopback" }],
        memory: { service: name, miB: memoryMiB },
      },
      this,
    );

    const request = gpuRequest(gpus);
    const { container } = serverContainer(this, host, {
      ...limitsOf("baseline", memoryMiB, host.cores),
      image: image.imageId,
      labels: labels(this, name),
      gpus: request.gpus,
      runtime: request.runtime,
      env: environmentList({
        ...request.env,
        DEVICE: gpus.length > 0 ? "cuda" : "cpu",
        HOST: "0.0.0.0",
        MODEL_NAME: spec?.name ?? "",
        MODEL_PATH: posix.join(
          modelRepositoryMount,
          spec === undefined ? "" : modelPath(spec, "fp32"),
        ),
        PORT: String(baselinePort),
        SHUTDOWN_GRACE_SECONDS: String(graceSeconds),
      }),
      // forms with many images
      tmpfs: tmpfs(tmpMiB),
      ports: [{ internal: baselinePort, external: port, ip: bindAddress("loopback") }],
      volumes: [...weights.mounts()],
      test: [
        "CMD",
        "python",
        "-c",
        "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=3)",
        `http://127.0.0.1:${baselinePort}${embedPaths.readyz}`,
      ],
      startSeconds: loadSeconds,
      graceSeconds,
    });
    this.container = container;
    const url = `http://${host.clientAddress("loopback")}:${port}`;
    this.service = {
      name,
      kind: "baseline",
      backend: "pytorch",
      models: this.models.map((model) => model.name),
      modelKind: "fp32",
      resources: { container: addressOf(this.container) },
      endpoints: [{ protocol: "embed-http", url, name: "pytorch-http" }],
    };
  }
}

function imageTowers({ towers: { image } }: ModelSpec): ModelSpec["towers"] {
  return { image };
}

/** Rejects weights that the container cannot load. */
function baselineFindings({ source, modelKind, models: [model] }: ModelWeights): readonly string[] {
  const name = model?.name ?? "";
  return [
    ...findingIf(
      !openClipTransformers.includes(name) || model?.towers.image === undefined,
      "weights.models.0",
      `be the image tower of ${openClipTransformers.join(", ")}, which the PyTorch baseline computes`,
      `'${name}'`,
    ),
    ...findingIf(
      source === "image",
      "weights.source",
      "be volume or host-path: the image of the PyTorch baseline contains no weights",
      `'${source}'`,
    ),
    ...findingIf(modelKind !== "fp32", "weights.modelKind", "be fp32", `'${modelKind}'`),
  ];
}
