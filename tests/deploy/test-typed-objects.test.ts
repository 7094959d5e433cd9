import { expect, test } from "vitest";
import { expression } from "../../constructs/terraform/expression.ts";
import { applyWithKubectl, type SynthesizedStack } from "./test-typed-objects.ts";

const container = { image: expression("docker_image.build.name") };

/** Cluster, a Deployment on it, and its rollout gate. */
const stack: SynthesizedStack = {
  output: { environment: { value: "as it is" } },
  provider: {
    docker: [{}],
    helm: [{}],
    kubernetes: [
      {
        config_path: expression("terraform_data.cluster.output.kubeconfig"),
        config_context: "kind",
      },
    ],
  },
  terraform: { required_providers: { docker: {}, helm: {}, kubernetes: {} } },
  resource: {
    docker_image: { build: { name: "image" } },
    kubernetes_deployment_v1: {
      embed: {
        depends_on: ["terraform_data.loaded"],
        metadata: {
          name: "clipstack-embed",
          namespace: expression("kubernetes_namespace_v1.namespace.id"),
        },
        spec: { template: { spec: { container: [container] } } },
      },
    },
    kubernetes_namespace_v1: { namespace: { depends_on: ["terraform_data.cluster"] } },
    terraform_data: {
      cluster: { input: 1 },
      loaded: { depends_on: ["terraform_data.cluster"] },
      "loaded-later": {},
      ready: {
        depends_on: ["kubernetes_deployment_v1.embed", "kubernetes_namespace_v1.namespace"],
        triggers_replace: [expression("kubernetes_deployment_v1.embed.metadata[0].generation")],
        lifecycle: { replace_triggered_by: [expression("kubernetes_deployment_v1.embed")] },
      },
    },
  },
};

const { resource, provider, terraform, output } = applyWithKubectl(stack, {
  command: "apply",
  workload: "clipstack-embed",
});

test("typed objects become one resource after their dependencies", () => {
  expect(Object.keys(resource)).toEqual(["docker_image", "terraform_data"]);
  expect(resource.terraform_data?.typed_objects).toMatchObject({
    depends_on: ["docker_image.build", "terraform_data.cluster", "terraform_data.loaded"],
    provisioner: [
      {
        "local-exec": {
          command: "apply",
          environment: {
            IMAGE: expression("docker_image.build.name"),
            KUBECONFIG: expression("terraform_data.cluster.output.kubeconfig"),
            CONTEXT: "kind",
          },
        },
      },
    ],
  });
});

test("resources that depended on a typed object depend on that resource", () => {
  expect(resource.terraform_data?.ready).toEqual({
    depends_on: ["terraform_data.typed_objects"],
    triggers_replace: [expression("terraform_data.typed_objects.id")],
    lifecycle: { replace_triggered_by: ["terraform_data.typed_objects"] },
  });
});

test("the provider is removed, and the rest is unchanged", () => {
  expect({ provider, terraform, output }).toEqual({
    provider: { docker: [{}] },
    terraform: { required_providers: { docker: {} } },
    output: stack.output,
  });
  expect(resource.terraform_data?.loaded).toEqual(stack.resource.terraform_data?.loaded);
  expect(JSON.stringify(resource)).not.toContain("kubernetes_");
});

test("fails without the Deployment", () => {
  expect(() => applyWithKubectl(stack, { command: "apply", workload: "other" })).toThrow(
    "the stack has no Deployment other",
  );
});
