import { Construct } from "constructs";
import { z } from "zod";
import { DockerProvider } from "#providers/docker/lib/provider/index.js";
import { HelmProvider } from "#providers/helm/lib/provider/index.js";
import { KubernetesProvider } from "#providers/kubernetes/lib/provider/index.js";
import { check } from "../checks/findings.ts";
import { portConflicts, type ReportedConflict } from "../checks/ports.ts";
import { port } from "../checks/prop-types.ts";
import { checkedProps } from "../checks/props.ts";
import { HostCheck } from "../docker/host-check.ts";
import type { HostRequirements } from "../docker/host-requirements.ts";
import type { ClusterAccess, PortMapping } from "../kubernetes/cluster-access.ts";
import { DataResource, TerraformStack } from "../terraform/cdktf.ts";
import type { RunsClipstack } from "../terraform/clipstack-command.ts";
import { expression } from "../terraform/expression.ts";

export interface KindClusterProps extends RunsClipstack {
  /** Name of the cluster; its kubeconfig context is `kind-<name>`. */
  readonly name: string;
  /**
   * Image of the node.
   *
   * @default - the default image of the installed kind release
   */
  readonly nodeImage?: string;
  /** NodePorts published on 127.0.0.1. kind sets them when it creates the cluster. */
  readonly portMappings: readonly PortMapping[];
  /** Kubeconfig to which kind adds the cluster; `~` is the home folder. */
  readonly kubeconfig: string;
}

/** Time limit of `kind create cluster` for the control plane. */
const createWaitSeconds = 180;

/** Shell code that rejects an existing cluster of the same name and, unlike kind's own message, prints a fix. */
const rejectExisting = [
  'if kind get clusters 2>/dev/null | grep -qxF "$NAME"; then',
  "echo \"a kind cluster named '$NAME' already exists and does not belong to this deployment, or its creation was interrupted:",
  "delete it with 'kind delete cluster --name $NAME', or set another cluster.name\" >&2;",
  "exit 1; fi",
].join(" ");

const createCommand = [
  `${rejectExisting};`,
  'printf "%s" "$KIND_CONFIG" | kind create cluster --name "$NAME" --kubeconfig "$KUBECONFIG_FILE"',
  `--config - --wait ${createWaitSeconds}s $KIND_FLAGS`,
].join(" ");

/** Disk space in MiB that the image and the pods of the node occupy in Docker's data folder. */
const nodeMiB = 4_096;

/**
 * kind cluster on this machine, with the Docker, Kubernetes and Helm providers configured for it.
 *
 * Name, ports, node image and kubeconfig cannot change later, because Terraform could not read the objects in the cluster
 * while it is replaced. A plan with such a change fails.
 */
export class KindCluster extends Construct implements ClusterAccess {
  readonly name: string;
  readonly context: string;
  /** Absolute path of the kubeconfig, as a Terraform expression. */
  readonly kubeconfig: string;
  readonly portMappings: readonly PortMapping[];
  /** Ports of this machine that two mappings publish. */
  readonly portConflicts: readonly ReportedConflict[];
  readonly command?: string;
  /** Check of this machine, before the cluster is created. */
  readonly check: HostCheck;
  /** The cluster itself. */
  readonly resource: DataResource;

  readonly #disk: HostRequirements["disk"];
  readonly #files: HostRequirements["files"] = [];
  readonly #images: string[] = [];

  constructor(scope: Construct, id: string, given: KindClusterProps) {
    super(scope, id);

    const mapping = z.strictObject({ nodePort: port, hostPort: port });
    const props = checkedProps(
      this,
      given,
      { portMappings: z.array(mapping) },
      { portMappings: [] },
    );

    this.portConflicts = portConflicts(
      props.portMappings.map(({ hostPort }, index) => ({
        service: id,
        prop: `portMappings.${index}.hostPort`,
        port: hostPort,
      })),
      [],
    ).map((conflict) => ({ ...conflict, construct: this.node.path }));
    check(this, () => this.portConflicts.map(({ finding }) => finding));

    this.name = props.name;
    this.context = `kind-${props.name}`;
    this.portMappings = props.portMappings;
    this.command = props.command;
    this.#disk = [{ what: "node of the cluster", miB: nodeMiB }];

    this.check = new HostCheck(this, "check", {
      repeats: "never",
      command: props.command,
      requirements: () => this.#requirements(props.nodeImage),
    });
    // the Docker engine that kind uses: DOCKER_HOST, or the local one
    new DockerProvider(this, "docker", {});
    TerraformStack.of(this).addOverride("terraform.required_providers.docker.version", "~> 4.5");

    this.resource = clusterResource(this, props);

    // An output is unknown until the cluster exists. With a known path the first plan would fail, because the provider
    // would look up a context that does not exist yet.
    this.kubeconfig = expression(`${this.resource.fqn}.output.kubeconfig`);
    const access = {
      configPath: this.kubeconfig,
      configContext: expression(`${this.resource.fqn}.output.context`),
    };
    new KubernetesProvider(this, "kubernetes", access);
    // Also configured without a chart: otherwise Terraform would uninstall a former release from Helm's default, the
    // current context.
    new HelmProvider(this, "helm", { kubernetes: access });
  }

  /** Adds an image to the check of this machine: an existing one, or the disk space and files of a build. */
  requireImage(
    required:
      | { readonly existing: string }
      | { readonly disk: HostRequirements["disk"]; readonly files: HostRequirements["files"] },
  ): void {
    if ("existing" in required) {
      this.#images.push(required.existing);
      return;
    }
    this.#disk.push(...required.disk);
    this.#files.push(...required.files);
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

/** Creates the cluster with kind and deletes it on destroy. */
function clusterResource(cluster: KindCluster, props: KindClusterProps): DataResource {
  const environment = TerraformStack.of(cluster).node.id;
  const attributes = {
    name: props.name,
    context: cluster.context,
    kubeconfig: expression(`pathexpand("${props.kubeconfig}")`),
    nodeImage: props.nodeImage ?? "",
    portMappings: props.portMappings
      .map(({ nodePort, hostPort }) => `${nodePort} to ${hostPort}`)
      .join(", "),
  };
  return new DataResource(cluster, "cluster", {
    input: attributes,
    dependsOn: [cluster.check.resource],
    lifecycle: {
      // the state keeps the original values, for the postconditions and for the destroy provisioner
      ignoreChanges: ["input"],
      postcondition: [
        ...(["name", "kubeconfig", "nodeImage", "portMappings"] as const).map((key) =>
          unchangeable(environment, key, attributes[key]),
        ),
        stillExists(environment),
      ],
    },
    provisioners: [
      {
        type: "local-exec",
        command: createCommand,
        environment: {
          NAME: props.name,
          KUBECONFIG_FILE: attributes.kubeconfig,
          KIND_CONFIG: kindConfig(props.portMappings),
          KIND_FLAGS: props.nodeImage === undefined ? "" : `--image=${props.nodeImage}`,
        },
      },
      {
        type: "local-exec",
        when: "destroy",
        // destroy provisioners can only refer to `self`
        command: 'kind delete cluster --name "$NAME" --kubeconfig "$KUBECONFIG_FILE"',
        environment: {
          NAME: expression("self.input.name"),
          KUBECONFIG_FILE: expression("self.input.kubeconfig"),
        },
      },
    ],
  });
}

/** Postcondition for a property that is fixed when the cluster is created. */
function unchangeable(environment: string, key: string, value: string) {
  const created = `self.output.${key}`;
  return {
    condition: expression(`${created} == "${value}"`),
    errorMessage: [
      `cluster.${key} of an existing cluster cannot change: it was created with '${expression(created)}', got '${value}'.`,
      `Restore the setting, or recreate the cluster: 'npx cdktf destroy ${environment}', then deploy.`,
    ].join(" "),
  };
}

/** Postcondition that the kubeconfig contains the cluster's context. Unknown, so not evaluated, until the cluster exists. */
function stillExists(environment: string) {
  const context = expression("self.output.context");
  return {
    condition: expression(
      `length(regexall("(?m)name: ${context}$", try(file(self.output.kubeconfig), ""))) > 0`,
    ),
    errorMessage: [
      `The kind cluster of this deployment no longer exists: context '${context}' is missing`,
      `in ${expression("self.output.kubeconfig")}. Delete the state of this environment`,
      `(terraform.${environment}.tfstate by default) and deploy again.`,
    ].join(" "),
  };
}

/** Configuration file of kind: one node with its port mappings. */
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
