import { expect, test } from "vitest";
import { DockerProvider } from "#providers/docker/lib/provider/index.js";
import { expression } from "../terraform/expression.ts";
import { synth } from "../test-synth.ts";
import { HostCheck } from "./host-check.ts";
import { type HostRequirements, hostRequirementsVariable } from "./host-requirements.ts";

const requirements: HostRequirements = {
  schema: 1,
  environment: "test",
  docker: "ssh://gpu@gpu-1",
  ports: [],
  disk: [],
  files: [],
};

function checked(produce = () => requirements) {
  const { only, json, address } = synth((stack) => {
    const { docker } = requirements;
    const check = new HostCheck(stack, "check", { docker, requirements: produce });
    new DockerProvider(stack, "docker", { host: check.docker });
  });
  return {
    resource: only("terraform_data"),
    address: address("test/check/doctor"),
    provider: json.provider.docker[0],
  };
}

test("runs doctor in the project folder with the requirements in its environment, not in the command", () => {
  const { resource } = checked();
  expect(resource.provisioner).toEqual([
    {
      "local-exec": {
        command: "npx --no-install clipstack doctor test",
        working_dir: `${expression("path.root")}/../../..`,
        environment: {
          [hostRequirementsVariable]: expression("jsonencode(self.triggers_replace)"),
        },
      },
    },
  ]);
});

test("runs again only when the requirements change", () => {
  expect(checked().resource.triggers_replace).toEqual(requirements);
});

test("collects requirements that are added after its construction", () => {
  const later = [{ service: "embed", setting: "port", port: 8002, address: "127.0.0.1" }];
  let produced: HostRequirements = requirements;
  const { only } = synth((stack) => {
    new HostCheck(stack, "check", { docker: "unix:///a", requirements: () => produced });
    produced = { ...requirements, ports: later };
  });
  expect(only("terraform_data").triggers_replace.ports).toEqual(later);
});

test("outputs the endpoint, so that the provider depends on it", () => {
  const { address, provider, resource } = checked();
  expect(resource.input).toEqual({ docker: "ssh://gpu@gpu-1" });
  expect(provider.host).toBe(expression(`${address}.input.docker`));
});
