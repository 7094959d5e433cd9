import type { Container } from "@cdktf/provider-docker/lib/container/index.js";
import { Construct } from "constructs";
import { DataResource } from "../cdktf.ts";
import { clipstackCommand } from "../clipstack-command.ts";
import { expression } from "../expression.ts";

export interface HealthGateProps {
  /** The container that must become healthy. It has a health check. */
  readonly container: Container;
  /** Docker endpoint of its host. */
  readonly docker: string;
  /** How long it may take, in seconds. */
  readonly timeoutSeconds: number;
}

/**
 * The deployment is over when the container is healthy, and fails with its last log lines when it stops, restarts in a
 * loop, or does not become healthy in time. The provider's own `wait` says neither.
 */
export class HealthGate extends Construct {
  readonly resource: DataResource;

  constructor(scope: Construct, id: string, props: HealthGateProps) {
    super(scope, id);

    const { container, docker, timeoutSeconds } = props;
    this.resource = new DataResource(this, "healthy", {
      // a container that is replaced has another id, and is waited for again
      triggersReplace: { container: expression(`${container.fqn}.id`) },
      provisioners: [
        {
          type: "local-exec",
          ...clipstackCommand(`wait-healthy ${container.nameInput} --timeout ${timeoutSeconds}`),
          environment: { DOCKER_HOST: docker },
        },
      ],
    });
  }
}
