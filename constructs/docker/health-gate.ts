import { Construct } from "constructs";
import type { Container } from "#providers/docker/lib/container/index.js";
import { DataResource } from "../terraform/cdktf.ts";
import { clipstackProvisioner, type RunsClipstack } from "../terraform/clipstack-command.ts";
import { expression } from "../terraform/expression.ts";

export interface HealthGateProps extends RunsClipstack {
  /** Container with a health check. */
  readonly container: Container;
  /** Docker endpoint of its host. */
  readonly docker: string;
  readonly timeoutSeconds: number;
}

/**
 * Waits until a container is healthy. Fails and prints the end of its log if it stops, restarts in a loop or exceeds the
 * time limit, which the provider's own `wait` does not.
 */
export class HealthGate extends Construct {
  readonly resource: DataResource;

  constructor(scope: Construct, id: string, props: HealthGateProps) {
    super(scope, id);

    const { container, docker, timeoutSeconds, command } = props;
    this.resource = new DataResource(this, "healthy", {
      // a replaced container has another id
      triggersReplace: { container: expression(`${container.fqn}.id`) },
      provisioners: [
        clipstackProvisioner(
          `wait-healthy ${container.nameInput} --timeout ${timeoutSeconds}`,
          { DOCKER_HOST: docker },
          command,
        ),
      ],
    });
  }
}
