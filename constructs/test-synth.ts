import { findingsOf } from "./checks/findings.ts";
import { GpuHost } from "./docker/gpu-host.ts";
import type { GpuHostProps } from "./docker/host-plan.ts";
import { ModelWeights, type WeightsSource } from "./docker/model-weights.ts";
import type { ServerImage } from "./docker/server-image.ts";
import { TerraformResource, TerraformStack, Testing } from "./terraform/cdktf.ts";

/** Value of Terraform JSON. */
// biome-ignore lint/suspicious/noExplicitAny: tests assert the structure
type Json = any;

/** Synthesizes a stack named `test`. Findings of its checks fail the test. */
export function synth(build: (stack: TerraformStack) => unknown) {
  const stack = stackOf(build);
  const json = JSON.parse(Testing.synth(stack, true)) as Json;
  const all = (type: string): Json[] => Object.values(json.resource?.[type] ?? {});
  const resourceAt = (path: string): TerraformResource => {
    const found = stack.node.findAll().find(({ node }) => node.path === path);
    if (!(found instanceof TerraformResource)) throw new Error(`no resource at ${path}`);
    return found;
  };
  return {
    json,
    stack,
    all,
    /** Returns the only resource of a type. */
    only(type: string): Json {
      const found = all(type);
      if (found.length !== 1) throw new Error(`expected one ${type}, found ${found.length}`);
      return found[0];
    },
    /** Returns the resource at a construct path. */
    at(path: string): Json {
      const { terraformResourceType, friendlyUniqueId } = resourceAt(path);
      return json.resource[terraformResourceType][friendlyUniqueId];
    },
    /** Returns the Terraform address of the resource at a construct path. */
    address(path: string): string {
      const { terraformResourceType, friendlyUniqueId } = resourceAt(path);
      return `${terraformResourceType}.${friendlyUniqueId}`;
    },
  };
}

/** Returns the findings of the checks in a stack named `test`. */
export function findings(build: (stack: TerraformStack) => unknown): readonly string[] {
  return findingsOf(stackOf(build));
}

function stackOf(build: (stack: TerraformStack) => unknown): TerraformStack {
  const stack = new TerraformStack(Testing.app(), "test");
  build(stack);
  return stack;
}

/** Creates a local host with four GPUs. */
export function hostIn(stack: TerraformStack, props: Partial<GpuHostProps> = {}): GpuHost {
  return new GpuHost(stack, "host", {
    docker: "unix:///var/run/docker.sock",
    gpu: "rtx-4080",
    count: 4,
    accelerator: "gpu",
    network: "test-network",
    ...props,
  });
}

/** Creates the resources that a server of `host` requires: the embed image and weights. */
export function dependenciesIn(
  stack: TerraformStack,
  host: GpuHost,
  source: WeightsSource = "host-path",
): { readonly tools: ServerImage; readonly weights: ModelWeights } {
  const tools = host.image("embed-cpu", { source: "pull", name: "embed:1" });
  const props = { host, tools, source, modelRepository: "/srv/models" };
  return { tools, weights: new ModelWeights(stack, "weights", props) };
}
