import { z } from "zod";
import { kindPorts } from "../../contract/ports.ts";
import { serverSettings } from "../../contract/server/server-settings.ts";
import {
  cpuScaling,
  disruptionBudget,
  namespace,
  podResources,
  quantities,
  quotaFields,
} from "./cluster-settings.ts";
import { kindImage } from "./image-settings.ts";
import { models, type WithSpecs } from "./model-settings.ts";
import { review } from "./review-settings.ts";
import { image, name, path, port } from "./setting-types.ts";
import { state } from "./state-settings.ts";

const cluster = z
  .strictObject({
    name: name
      .default("clipstack")
      .describe("Name of the kind cluster; its kubeconfig context is `kind-<name>`."),
    nodeImage: image
      .optional()
      .describe("Image of the node. Default: the image of the installed kind release."),
    kubeconfig: path
      .default("~/.kube/config")
      .describe("Kubeconfig that kind adds the cluster to."),
    portMappings: z
      .array(
        z.strictObject({
          nodePort: port.describe("Port of the node."),
          hostPort: port.describe("Port of this machine."),
        }),
      )
      .min(1, "must map at least one port")
      .default([{ nodePort: kindPorts.nodePort, hostPort: kindPorts.host }])
      .describe("NodePorts that are published on 127.0.0.1 of this machine."),
  })
  .prefault({});

export const kindSettings = z.strictObject({
  state,
  review,
  cluster,
  namespace,
  models,
  deployWith: z
    .enum(["kubernetes", "helm"])
    .default("kubernetes")
    .describe(
      "Declares the objects of the namespace with typed resources (`kubernetes`) or the project's chart `helm/clipstack` (`helm`). The objects are the same; a change recreates the namespace.",
    ),
  metricsServer: z
    .strictObject({
      image: image
        .default("registry.k8s.io/metrics-server/metrics-server:v0.7.2")
        .describe("Image that the node pulls if it does not have it."),
    })
    .prefault({})
    .describe("metrics-server, which provides the autoscaler with the CPU utilisation."),
  embed: z
    .strictObject({
      image: kindImage,
      server: serverSettings.optional(),
      nodePort: port
        .default(kindPorts.nodePort)
        .describe("NodePort, 30000 to 32767, that the cluster maps."),
      resources: podResources(quantities(250, 1_024), quantities(1_000, 1_536)),
    })
    .prefault({}),
  autoscaler: z.strictObject(cpuScaling(2, 6)).prefault({}),
  budget: disruptionBudget,
  quota: z
    .strictObject(quotaFields(quantities(1_750, 7_168), quantities(7_000, 10_752), 10))
    .prefault({})
    .describe("ResourceQuota: maxReplicas pods, and one more during a rolling update."),
  limitRange: z
    .strictObject({
      defaultRequests: quantities(100, 128),
      defaultLimits: quantities(500, 512),
      max: quantities(2_000, 4_096),
    })
    .prefault({})
    .describe("LimitRange: default and maximum resources of a container."),
});
export type KindSettings = WithSpecs<z.infer<typeof kindSettings>>;
