import { createHash } from "node:crypto";
import { Construct } from "constructs";
import { Container, type ContainerConfig } from "#providers/docker/lib/container/index.js";
import { asWritten, TerraformStack } from "../terraform/cdktf.ts";
import { expression } from "../terraform/expression.ts";
import { hardened, labels, serverUser } from "./container-defaults.ts";
import type { GpuHost } from "./gpu-host.ts";
import type { ServerImage } from "./server-image.ts";

export interface OneShotProps {
  readonly host: GpuHost;
  readonly image: ServerImage;
  /** Value of the label `clipstack.service`, and part of the container's name. */
  readonly service: string;
  /** Command, mounts and network of the container. */
  readonly run: Pick<
    ContainerConfig,
    "entrypoint" | "command" | "env" | "volumes" | "upload" | "networksAdvanced" | "networkMode"
  > & { readonly capabilities?: { readonly add: string[]; readonly drop: string[] } };
  /** Values that `run` refers to by expressions and that Terraform knows when it plans. A changed value runs the container again. */
  readonly versions: readonly string[];
}

/**
 * Container that runs once, before any service of the host is replaced. If it fails, the deployment stops and prints its
 * log, the deployed services keep running, and the next deployment runs it again.
 */
export class OneShot extends Construct {
  readonly container: Container;

  constructor(scope: Construct, id: string, props: OneShotProps) {
    super(scope, id);

    const { host, image, service, run, versions } = props;
    // With `for_each`, another image or command creates a new container first, instead of replacing the old one.
    const text = createHash("sha256")
      .update(JSON.stringify(asWritten(this, run)))
      .digest("hex");
    const parts = [text, image.name, ...versions].map((part) => `"${part}"`).join(", ");
    const key = `substr(sha256(join(" ", [${parts}])), 0, 12)`;
    const stack = TerraformStack.of(this).node.id;

    this.container = new Container(this, "container", {
      ...hardened,
      provider: host.provider,
      // root without capabilities, because a new volume belongs to root
      user: "0:0",
      // the provider uploads files to the root file system
      readOnly: false,
      // a failed or interrupted container keeps its name until this one has run
      name: `${stack}-${service}-${expression("substr(uuid(), 0, 8)")}`,
      image: expression(`${image.resource.fqn}.name`),
      labels: labels(this, service),
      restart: "no",
      mustRun: false,
      attach: true,
      logs: true,
      ...run,
      lifecycle: { createBeforeDestroy: true, ignoreChanges: ["name"] },
      provisioners: [
        {
          type: "local-exec",
          command: 'printf "%s" "$LOGS"; exit "$EXIT_CODE"',
          environment: {
            EXIT_CODE: expression("self.exit_code"),
            LOGS: expression("self.container_logs"),
          },
        },
      ],
    });
    // A failing provisioner taints the container, so that it is created again; a failing postcondition does not.
    this.container.addOverride("for_each", expression(`toset([${key}])`));
    this.container.addOverride("provisioner.0.local-exec.quiet", true);
    // a Triton server that loads a configuration may build engines for longer than the provider's default of 20 minutes
    this.container.addOverride("timeouts.create", "2h");
    host.addPrerequisite(this.container, expression(key));
  }
}

/**
 * Adds a one-shot container `owner` that gives a volume to the user of the servers. A new volume belongs to root.
 *
 * @param mount - Mount path of the volume in the container.
 */
export function giveToServerUser(
  scope: Construct,
  {
    volumeName,
    mount,
    ...props
  }: Omit<OneShotProps, "run"> & { volumeName: string; mount: string },
): OneShot {
  return new OneShot(scope, "owner", {
    ...props,
    run: {
      entrypoint: ["chown"],
      command: [serverUser, mount],
      capabilities: { add: ["CAP_CHOWN"], drop: ["ALL"] },
      networkMode: "none",
      volumes: [{ volumeName, containerPath: mount }],
    },
  });
}
