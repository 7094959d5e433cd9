import { expect, test } from "vitest";
import { Container } from "#providers/docker/lib/container/index.js";
import { DockerProvider } from "#providers/docker/lib/provider/index.js";
import { expression } from "../terraform/expression.ts";
import { synth } from "../test-synth.ts";
import { HealthGate } from "./health-gate.ts";

test("waits for each new container and passes the endpoint in the environment, not in the command", () => {
  const { only, address } = synth((stack) => {
    new DockerProvider(stack, "docker", {});
    const container = new Container(stack, "container", { name: "test-embed", image: "a:1" });
    new HealthGate(stack, "healthy", { container, docker: "ssh://gpu@gpu-1", timeoutSeconds: 150 });
  });
  expect(only("terraform_data")).toMatchObject({
    triggers_replace: { container: expression(`${address("test/container")}.id`) },
    provisioner: [
      {
        "local-exec": {
          command: "npx --no-install clipstack wait-healthy test-embed --timeout 150",
          working_dir: `${expression("path.root")}/../../..`,
          environment: { DOCKER_HOST: "ssh://gpu@gpu-1" },
        },
      },
    ],
  });
});
