import { createHash } from "node:crypto";
import { Container, type ContainerConfig } from "@cdktf/provider-docker/lib/container/index.js";
import { Construct } from "constructs";
import { asWritten, TerraformStack } from "../cdktf.ts";
import { expression } from "../expression.ts";
import { hardened, labels } from "./container-defaults.ts";
import type { GpuHost } from "./gpu-host.ts";
import type { ServerImage } from "./server-image.ts";

export interface OneShotProps {
  readonly host: GpuHost;
  readonly image: ServerImage;
  /** What is in the label `clipstack.service`, and in the name. */
  readonly service: string;
  /** What it does. */
  readonly run: Pick<
    ContainerConfig,
    "entrypoint" | "command" | "env" | "volumes" | "upload" | "networksAdvanced" | "networkMode"
  > & { readonly capabilities?: { readonly add: string[]; readonly drop: string[] } };
  /** Expressions in `run` whose value can change while their text does not. Known when a plan is made. */
  readonly versions: readonly string[];
}

/**
 * A container that does one thing and ends, before any service of the host is touched. Where it ends with another code
 * than 0, the deployment stops with what it said, what runs goes on, and the next deployment tries again.
 */
export class OneShot extends Construct {
  readonly container: Container;

  constructor(scope: Construct, id: string, props: OneShotProps) {
    super(scope, id);

    const { host, image, service, run, versions } = props;
    // Another image or another command is another container, beside the one before: with `for_each`, nothing is replaced.
    const text = createHash("sha256")
      .update(JSON.stringify(asWritten(this, run)))
      .digest("hex");
    const parts = [text, image.name, ...versions].map((part) => `"${part}"`).join(", ");
    const key = `substr(sha256(join(" ", [${parts}])), 0, 12)`;
    const stack = TerraformStack.of(this).node.id;

    this.container = new Container(this, "container", {
      ...hardened,
      // Root without any capability: a new volume is root's.
      user: "0:0",
      // the provider puts files into a container through its root
      readOnly: false,
      // Not the name of one that failed or was cut off: it is there until this one has run.
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
    // A provisioner and not a postcondition: what fails is tainted, and made again.
    this.container.addOverride("for_each", expression(`toset([${key}])`));
    this.container.addOverride("provisioner.0.local-exec.quiet", true);
    // the provider's own limit is 20 minutes, and a Triton that loads a configuration may build engines for longer
    this.container.addOverride("timeouts.create", "2h");
    host.before(this.container, expression(key));
  }
}
