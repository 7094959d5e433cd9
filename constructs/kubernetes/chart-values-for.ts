import { gpuResource } from "../../contract/gpus.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModels } from "../../contract/models/index.ts";
import {
  defaultModelsArgument,
  modelList,
  modelsArgument,
} from "../../contract/server/model-list.ts";
import type { ServerSettings } from "../../contract/server/server-settings.ts";
import type { ContainerRange, Quota, Resources } from "../checks/kubernetes.ts";
import type { ChartValues } from "./chart-values.ts";
import type { InferenceDeploymentProps } from "./inference-deployment.ts";
import { kubernetesQuantities, quotaQuantities, rangeQuantities } from "./kubernetes-quantities.ts";

/**
 * Parses an image reference: `name`, `name:tag`, `registry:5000/name:tag` or `name@sha256:…`. The tag may contain Terraform
 * expressions.
 */
export function chartImage(
  name: string,
): Pick<NonNullable<NonNullable<ChartValues["embed"]>["image"]>, "repository" | "tag" | "digest"> {
  const [, repository = name, tag, digest] =
    /^(.+?)(?::([\w](?:[\w.-]|\$\{[^}]*\})*))?(?:@(sha256:[0-9a-f]{64}))?$/.exec(name) ?? [];
  if (digest !== undefined) return { repository, digest };
  return { repository, tag: tag ?? "latest" };
}

export function chartResources({ requests, limits }: Resources) {
  return { requests: kubernetesQuantities(requests), limits: kubernetesQuantities(limits) };
}

export function chartQuota(quota: Quota, gpus = 0, resourceName = gpuResource) {
  return {
    enabled: true,
    hard: {
      ...quotaQuantities(quota),
      ...(gpus > 0 && { [`requests.${resourceName}`]: String(gpus) }),
    },
  };
}

export function chartLimitRange(range: ContainerRange) {
  return { enabled: true, ...rangeQuantities(range) };
}

/** Chart values of the served models; none for the models that the chart serves by default. */
export function chartModels(models: readonly ModelSpec[]): Pick<ChartValues, "models"> {
  return modelsArgument(models) === defaultModelsArgument ? {} : { models: [...modelList(models)] };
}

/** Chart values of the server's variables. */
export function chartServer(
  settings: ServerSettings = {},
): Pick<NonNullable<ChartValues["embed"]>, "server" | "graceSeconds"> {
  const { shutdownGraceSeconds: graceSeconds, ...server } = settings;
  return {
    ...(Object.keys(server).length > 0 && { server }),
    ...(graceSeconds !== undefined && { graceSeconds }),
  };
}

export interface KindChartProps
  extends Pick<
    InferenceDeploymentProps,
    "nodePort" | "resources" | "autoscaler" | "budget" | "server"
  > {
  /** @default - images with OpenCLIP ViT-B/32 */
  readonly models?: readonly ModelSpec[];
  /** Image with the weights, loaded into the cluster's nodes. */
  readonly image: string;
  readonly quota: Quota;
  readonly limitRange: ContainerRange;
}

/** Chart values that render the objects declared by `InferenceDeployment`. */
export function chartValuesForKind(props: KindChartProps): ChartValues {
  const { models = defaultModels, image, nodePort, resources } = props;
  const { autoscaler, budget, quota, limitRange } = props;
  return {
    ...chartModels(models),
    embed: {
      image: { ...chartImage(image), pullPolicy: "IfNotPresent" },
      // the image is loaded into the nodes before the pods start
      imagePullSeconds: 0,
      resources: chartResources(resources),
      ...chartServer(props.server),
      service: nodePort === undefined ? { type: "ClusterIP" } : { type: "NodePort", nodePort },
      // reachable only from the cluster, or through a NodePort on the loopback interface
      auth: { allowAnonymous: true },
      ...(nodePort !== undefined && { allowPlaintext: true }),
      autoscaling: { enabled: true, ...autoscaler },
      budget: { enabled: true, ...budget },
    },
    quota: chartQuota(quota),
    limitRange: chartLimitRange(limitRange),
  };
}
