import { KubernetesProvider } from "@cdktf/provider-kubernetes/lib/provider/index.js";
import { Construct } from "constructs";
import { DataResource } from "./cdktf.ts";
import { check } from "./checks/findings.ts";
import { portConflicts } from "./checks/ports.ts";
import { expression } from "./expression.ts";

/** A NodePort of the cluster, reached on this machine. */
export interface PortMapping {
  readonly nodePort: number;
  readonly hostPort: number;
}

export interface KindClusterProps {
  /** Name of the cluster; its kubeconfig context is `kind-<name>`. */
  readonly name: string;
  /**
   * Image of the node.
   *
   * @default - the one that the installed kind was released with
   */
  readonly nodeImage?: string;
  /** NodePorts to reach on 127.0.0.1. kind can set them only when it creates the cluster. */
  readonly portMappings: readonly PortMapping[];
  /** Local images that the nodes need: kind copies them, nothing is pulled. */
  readonly images: readonly string[];
  /** File that kind adds the cluster to, and the Kubernetes provider reads. `~` is the home folder. */
  readonly kubeconfig: string;
}

/** Seconds that `kind create cluster` waits for the control plane. */
const createWaitSeconds = 180;

const createCommand = [
  'printf "%s" "$KIND_CONFIG" | kind create cluster --name "$NAME" --kubeconfig "$KUBECONFIG_FILE"',
  `--config - --wait ${createWaitSeconds}s $KIND_FLAGS`,
].join(" ");

/** A Kubernetes cluster in containers on this machine, and the provider that talks to it. */
export class KindCluster extends Construct {
  /** Context of the kubeconfig. */
  readonly context: string;
  readonly portMappings: readonly PortMapping[];
  /** The cluster. Replaced when its name, node image or port mappings change. */
  readonly cluster: DataResource;
  /** The images, copied to the nodes. Pods depend on it. */
  readonly images: DataResource;

  constructor(scope: Construct, id: string, props: KindClusterProps) {
    super(scope, id);

    check(this, () =>
      portConflicts(
        props.portMappings.map(({ hostPort }, index) => ({
          service: id,
          prop: `portMappings.${index}.hostPort`,
          port: hostPort,
        })),
        [],
      ),
    );

    this.context = `kind-${props.name}`;
    this.portMappings = props.portMappings;
    const kubeconfig = expression(`pathexpand("${props.kubeconfig}")`);
    const config = kindConfig(props.portMappings);

    this.cluster = new DataResource(this, "cluster", {
      input: { name: props.name, context: this.context, kubeconfig },
      triggersReplace: { name: props.name, config, nodeImage: props.nodeImage ?? "" },
      provisioners: [
        {
          type: "local-exec",
          command: createCommand,
          environment: {
            NAME: props.name,
            KUBECONFIG_FILE: kubeconfig,
            KIND_CONFIG: config,
            KIND_FLAGS: props.nodeImage === undefined ? "" : `--image=${props.nodeImage}`,
          },
        },
        {
          type: "local-exec",
          when: "destroy",
          // at destroy only `self` is known
          command: 'kind delete cluster --name "$NAME" --kubeconfig "$KUBECONFIG_FILE"',
          environment: {
            NAME: expression("self.input.name"),
            KUBECONFIG_FILE: expression("self.input.kubeconfig"),
          },
        },
      ],
    });
    this.images = new DataResource(this, "images", {
      triggersReplace: {
        cluster: expression(`${this.cluster.fqn}.id`),
        images: props.images.join(" "),
      },
      provisioners: [
        {
          type: "local-exec",
          command: 'kind load docker-image --name "$NAME" $IMAGES',
          environment: { NAME: props.name, IMAGES: props.images.join(" ") },
        },
      ],
    });

    // From the output, which is unknown until the cluster exists: with a known path the first plan fails, because the
    // provider looks for a context that is not there yet.
    new KubernetesProvider(this, "kubernetes", {
      configPath: expression(`${this.cluster.fqn}.output.kubeconfig`),
      configContext: expression(`${this.cluster.fqn}.output.context`),
    });
  }
}

/** kind's own configuration: one node, and the ports that this machine maps to it. */
function kindConfig(mappings: readonly PortMapping[]): string {
  return [
    "kind: Cluster",
    "apiVersion: kind.x-k8s.io/v1alpha4",
    "nodes:",
    "  - role: control-plane",
    "    extraPortMappings:",
    ...mappings.flatMap(({ nodePort, hostPort }) => [
      `      - containerPort: ${nodePort}`,
      `        hostPort: ${hostPort}`,
      '        listenAddress: "127.0.0.1"',
      "        protocol: TCP",
    ]),
    "",
  ].join("\n");
}
