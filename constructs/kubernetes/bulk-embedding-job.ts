import { Construct } from "constructs";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { check, finding, findingIf } from "../checks/findings.ts";
import { imageFindings } from "../checks/images.ts";
import type { ChartValues } from "./chart-values.ts";
import { chartImage, chartModels } from "./chart-values-for.ts";
import type { GpuCluster } from "./gpu-cluster.ts";
import { HardenedNamespace } from "./hardened-namespace.ts";
import { InferenceChart } from "./inference-chart.ts";

export interface BulkEmbeddingJobProps {
  readonly cluster: GpuCluster;
  /** Folder of the chart `clipstack`, relative to the project. */
  readonly chart: string;
  readonly namespace: string;
  /** Whether the deployment creates the namespace and destroys it with the environment. */
  readonly createNamespace: boolean;
  /** Models of the chart; the job embeds with the first. @default - OpenCLIP ViT-B/32 */
  readonly models?: readonly ModelSpec[];
  /** Embed image with a tag or digest, which the cluster can pull. */
  readonly image: string;
  /** Triton's image, used if the cluster's accelerator is `gpu`. */
  readonly tritonImage: string;
  /** Weights, as the chart's `model`. */
  readonly model: ChartValues["model"];
  /** The chart's `bulk`, without the fields that follow from the other props. */
  readonly job: Omit<NonNullable<ChartValues["bulk"]>, "enabled" | "accelerator">;
}

/** Job or CronJob that embeds images into a table, deployed with the chart `clipstack` without servers. */
export class BulkEmbeddingJob extends Construct {
  readonly chart: InferenceChart;
  /** Workers and their schedule, for one line about the stack. */
  readonly summary: string;

  constructor(scope: Construct, id: string, props: BulkEmbeddingJobProps) {
    super(scope, id);

    const { cluster, namespace, createNamespace, model, job, image, tritonImage } = props;
    const { workers = 4, schedule, credentialsSecret = "" } = job;
    const onGpu = cluster.accelerator === "gpu";
    const objects = [
      { kind: "secret", name: credentialsSecret, setting: "job.credentialsSecret" },
      {
        kind: "persistentvolumeclaim",
        name: model?.weights === "pvc" ? (model.pvc?.claimName ?? "") : "",
        setting: "model.pvc.claimName",
      },
    ] as const;
    const named = objects.filter(({ name }) => name !== "");
    check(this, () => [
      ...imageFindings(image, "image"),
      ...(onGpu ? imageFindings(tritonImage, "tritonImage") : []),
      ...(createNamespace
        ? named.map(({ setting, name }) =>
            finding(
              "createNamespace",
              `be false when ${setting} names an existing object of the namespace ('${name}')`,
              "true",
            ),
          )
        : []),
      ...findingIf(
        onGpu && workers > cluster.pool.nodes * cluster.devicesPerNode,
        "job.workers",
        `be at most the GPUs of nodePool (${cluster.pool.nodes * cluster.devicesPerNode})`,
        String(workers),
      ),
      ...findingIf(
        onGpu && !model?.sha256,
        "model.sha256",
        "be set when accelerator is gpu, because rows name the fingerprint of the model",
        "nothing",
      ),
    ]);
    const gpus = onGpu ? workers : 0;
    cluster.setRequirements({
      namespace,
      createNamespace,
      gpus,
      gpusAtLeast: Math.min(gpus, 1),
      apis: [],
      objects: [...named],
    });
    const { runtimeClass, selector, tolerations } = cluster.pool;
    this.chart = new InferenceChart(this, "chart", {
      folder: props.chart,
      namespace: createNamespace
        ? new HardenedNamespace(this, "namespace", namespace).namespaceName
        : namespace,
      values: {
        ...(props.models !== undefined && chartModels(props.models)),
        ...(model !== undefined && { model }),
        gpuResourceName: cluster.resourceName,
        embed: { enabled: false, image: chartImage(image) },
        triton: { enabled: false, image: chartImage(tritonImage) },
        bulk: {
          ...job,
          ...(onGpu && {
            ...(runtimeClass !== "none" && { runtimeClassName: runtimeClass }),
            nodeSelector: { ...selector, ...job.nodeSelector },
            tolerations: [...tolerations, ...(job.tolerations ?? [])],
          }),
          enabled: true,
          accelerator: cluster.accelerator,
        },
      },
      timeoutSeconds: 300,
    });
    this.summary = `${workers} workers${schedule ? `, ${schedule}` : ""}`;
  }
}
