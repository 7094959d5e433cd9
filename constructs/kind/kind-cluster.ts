import { DockerProvider } from "@cdktf/provider-docker/lib/provider/index.js";
import { HelmProvider } from "@cdktf/provider-helm/lib/provider/index.js";
import { KubernetesProvider } from "@cdktf/provider-kubernetes/lib/provider/index.js";
import { Construct } from "constructs";
import { DataResource, TerraformStack } from "../cdktf.ts";
import { check } from "../checks/findings.ts";
import { portConflicts } from "../checks/ports.ts";
import { HostCheck } from "../docker/host-check.ts";
import type { HostRequirements } from "../docker/host-requirements.ts";
import { expression } from "../expression.ts";

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
  /** File that kind adds the cluster to, and the Kubernetes provider reads. `~` is the home folder. */
  readonly kubeconfig: string;
}

/** Seconds that `kind create cluster` waits for the control plane. */
const createWaitSeconds = 180;

/** A cluster of this name that somebody else made is left alone: kind's own message says less. */
const refuseTaken = [
  'if kind get clusters 2>/dev/null | grep -qxF "$NAME"; then',
  "echo \"a kind cluster named '$NAME' is there already, and this deployment has not made it, or not to its end:",
  "remove that cluster with 'kind delete cluster --name $NAME', or set another cluster.name\" >&2;",
  "exit 1; fi",
].join(" ");

const createCommand = [
  `${refuseTaken};`,
  'printf "%s" "$KIND_CONFIG" | kind create cluster --name "$NAME" --kubeconfig "$KUBECONFIG_FILE"',
  `--config - --wait ${createWaitSeconds}s $KIND_FLAGS`,
].join(" ");

/** Room of the node in Docker's folder, in MiB: its image, and what runs in it. */
const nodeMiB = 4_096;

/**
 * A Kubernetes cluster in containers on this machine, and the providers that talk to it.
 *
 * What kind sets when it makes a cluster cannot be changed later: the objects in it could not be read while it is replaced.
 * Such a change is refused when a plan is made.
 */
export class KindCluster extends Construct {
  readonly name: string;
  /** Context of the kubeconfig. */
  readonly context: string;
  /** The kubeconfig, as an absolute path that Terraform knows. */
  readonly kubeconfig: string;
  readonly portMappings: readonly PortMapping[];
  /** Done before anything is made. */
  readonly check: HostCheck;
  /** The cluster. */
  readonly cluster: DataResource;

  readonly #disk: HostRequirements["disk"];
  readonly #files: HostRequirements["files"] = [];
  readonly #images: string[] = [];

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

    this.name = props.name;
    this.context = `kind-${props.name}`;
    this.portMappings = props.portMappings;
    this.#disk = [{ what: "node of the cluster", miB: nodeMiB }];

    this.check = new HostCheck(this, "check", {
      repeats: "never",
      requirements: () => this.#requirements(props.nodeImage),
    });
    // the engine that kind uses: DOCKER_HOST, or this machine's
    new DockerProvider(this, "docker", {});
    TerraformStack.of(this).addOverride("terraform.required_providers.docker.version", "~> 4.5");

    const config = kindConfig(props.portMappings);
    const made = {
      name: props.name,
      context: this.context,
      kubeconfig: expression(`pathexpand("${props.kubeconfig}")`),
      nodeImage: props.nodeImage ?? "",
      portMappings: props.portMappings
        .map(({ nodePort, hostPort }) => `${nodePort} to ${hostPort}`)
        .join(", "),
    };
    this.cluster = new DataResource(this, "cluster", {
      input: made,
      dependsOn: [this.check.resource],
      lifecycle: {
        // what it was made with stays in the state, for the conditions and for the end of it
        ignoreChanges: ["input"],
        postcondition: [
          ...(["name", "kubeconfig", "nodeImage", "portMappings"] as const).map((key) =>
            unchangeable(TerraformStack.of(this).node.id, key, made[key]),
          ),
          {
            // unknown, and so not looked at, until the cluster is made
            condition: expression(
              `length(regexall("(?m)name: ${expression("self.output.context")}$", try(file(self.output.kubeconfig), ""))) > 0`,
            ),
            errorMessage: [
              `The kind cluster of this deployment is gone: there is no context '${expression("self.output.context")}'`,
              `in ${expression("self.output.kubeconfig")}. What was in it is gone too: remove the state of this environment`,
              `(terraform.${TerraformStack.of(this).node.id}.tfstate, unless settings say otherwise), then deploy again.`,
            ].join(" "),
          },
        ],
      },
      provisioners: [
        {
          type: "local-exec",
          command: createCommand,
          environment: {
            NAME: props.name,
            KUBECONFIG_FILE: made.kubeconfig,
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

    // From the output, which is unknown until the cluster exists: with a known path the first plan fails, because the
    // provider looks for a context that is not there yet.
    this.kubeconfig = expression(`${this.cluster.fqn}.output.kubeconfig`);
    const access = {
      configPath: this.kubeconfig,
      configContext: expression(`${this.cluster.fqn}.output.context`),
    };
    new KubernetesProvider(this, "kubernetes", access);
    // Also where no chart is installed any more: without it Terraform would remove the old release with what is Helm's
    // default, the current context of whoever deploys.
    new HelmProvider(this, "helm", { kubernetes: access });
  }

  /** Have this machine checked for an image before anything is made: that it is there, or what building it takes. */
  needsImage(
    needs:
      | { readonly there: string }
      | { readonly disk: HostRequirements["disk"]; readonly files: HostRequirements["files"] },
  ): void {
    if ("there" in needs) {
      this.#images.push(needs.there);
      return;
    }
    this.#disk.push(...needs.disk);
    this.#files.push(...needs.files);
  }

  #requirements(nodeImage: string | undefined): HostRequirements {
    return {
      schema: 1,
      environment: TerraformStack.of(this).node.id,
      kind: {
        cluster: this.name,
        ...(nodeImage !== undefined && { nodeImage }),
        images: [...this.#images],
      },
      ports: this.portMappings.map(({ hostPort }, index) => ({
        service: this.node.id,
        setting: `portMappings.${index}.hostPort`,
        port: hostPort,
        address: "127.0.0.1",
      })),
      disk: [...this.#disk],
      files: [...this.#files],
    };
  }
}

/** A setting that a cluster keeps for life. */
function unchangeable(environment: string, key: string, value: string) {
  const made = `self.output.${key}`;
  return {
    condition: expression(`${made} == "${value}"`),
    errorMessage: [
      `The cluster was made with cluster.${key} '${expression(made)}', and a cluster that is there cannot get another one,`,
      `here '${value}'. Set it back, or make the cluster anew: 'npx cdktf destroy ${environment}', then deploy.`,
    ].join(" "),
  };
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
