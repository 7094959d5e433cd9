import type { Budget, ContainerRange, CpuScaling, Quota, Resources } from "../checks/kubernetes.ts";
import type { ChartValues } from "./chart-values.ts";
import { kubernetesQuantities, quotaQuantities, rangeQuantities } from "./kubernetes-quantities.ts";

/** An image by its name: `name`, `name:tag`, `registry:5000/name:tag` or `name@sha256:…`. Terraform may know a part of the tag. */
export function chartImage(
  name: string,
): Pick<NonNullable<NonNullable<ChartValues["embed"]>["image"]>, "repository" | "tag" | "digest"> {
  const [, repository = name, tag, digest] =
    /^(.+?)(?::([\w](?:[\w.-]|\$\{[^}]*\})*))?(?:@(sha256:[0-9a-f]{64}))?$/.exec(name) ?? [];
  if (digest !== undefined) return { repository, digest };
  return { repository, tag: tag ?? "latest" };
}

/** Requests and limits in the units of Kubernetes. */
export function chartResources({ requests, limits }: Resources) {
  return { requests: kubernetesQuantities(requests), limits: kubernetesQuantities(limits) };
}

/** `hard` of the chart's quota. */
export function chartQuota(quota: Quota, gpus = 0) {
  return {
    enabled: true,
    hard: {
      ...quotaQuantities(quota),
      ...(gpus > 0 && { "requests.nvidia.com/gpu": String(gpus) }),
    },
  };
}

export function chartLimitRange(range: ContainerRange) {
  return { enabled: true, ...rangeQuantities(range) };
}

export interface KindChartProps {
  /** Image in the cluster's nodes, with the weights in it. */
  readonly image: string;
  /** @default - a ClusterIP Service */
  readonly nodePort?: number;
  readonly resources: Resources;
  readonly autoscaler: CpuScaling;
  readonly budget: Budget;
  readonly quota: Quota;
  readonly limitRange: ContainerRange;
}

/** Chart values for the objects that `InferenceDeployment` declares. */
export function chartValuesForKind(props: KindChartProps): ChartValues {
  const { image, nodePort, resources, autoscaler, budget, quota, limitRange } = props;
  return {
    embed: {
      image: { ...chartImage(image), pullPolicy: "IfNotPresent" },
      // the nodes have the image before the pods
      imagePullSeconds: 0,
      resources: chartResources(resources),
      service: nodePort === undefined ? { type: "ClusterIP" } : { type: "NodePort", nodePort },
      // reachable from the cluster, or over a NodePort on the loopback interface
      auth: { allowAnonymous: true },
      autoscaling: { enabled: true, ...autoscaler },
      budget: { enabled: true, ...budget },
    },
    quota: chartQuota(quota),
    limitRange: chartLimitRange(limitRange),
  };
}
