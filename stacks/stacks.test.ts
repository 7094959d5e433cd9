import { describe, expect, test } from "vitest";
import { Testing } from "../constructs/cdktf.ts";
import { findingsOf } from "../constructs/checks/findings.ts";
import { environment, environmentOutput } from "../inference-image/src/contract/environment.ts";
import { KindLocalStack } from "./kind-local.ts";
import { MultiGpu4xStack } from "./multi-gpu-4x.ts";
import { parseSettings } from "./settings.ts";
import { SingleGpuStack } from "./single-gpu.ts";

const single = (yaml = "") =>
  new SingleGpuStack(Testing.app(), "single-gpu", parseSettings("single-gpu", "test", yaml));
const multi = (yaml = "") =>
  new MultiGpu4xStack(Testing.app(), "multi-gpu-4x", parseSettings("multi-gpu-4x", "test", yaml));
const kind = (yaml = "") =>
  new KindLocalStack(Testing.app(), "kind-local", parseSettings("kind-local", "test", yaml));

type Stack = ReturnType<typeof single> | ReturnType<typeof multi> | ReturnType<typeof kind>;

function synthesized(stack: Stack) {
  const json = JSON.parse(Testing.synth(stack, true));
  return {
    json,
    environment: environment.parse(json.output[environmentOutput].value),
    containers: Object.values(json.resource.docker_container ?? {}) as { name: string }[],
  };
}

/** Terraform addresses, which are what the state knows a resource by: a change destroys and creates. */
function addresses(stack: Stack): readonly string[] {
  const { json } = synthesized(stack);
  return Object.entries(json.resource as Record<string, object>)
    .flatMap(([type, byId]) => Object.keys(byId).map((id) => `${type}.${id}`))
    .sort();
}

const servicesOf = (stack: Stack) => synthesized(stack).environment.services.map((it) => it.name);
const tree = (stack: Stack) => Testing.renderConstructTree(stack);

describe("single-gpu", () => {
  test("is a host with the embed server and two Tritons", () => {
    expect(tree(single())).toMatchInlineSnapshot(`
      "single-gpu (SingleGpuStack)
      ├── backend (LocalBackend)
      ├── host (GpuHost)
          ├── docker (DockerProvider)
          └── network (Network)
      ├── triton-onnx (TritonServer)
          ├── image (Image)
          └── container (Container)
      ├── triton-trt (TritonServer)
          ├── image (Image)
          ├── engine-cache (EngineCache)
              ├── volume (Volume)
              └── owner (Container)
          └── container (Container)
      ├── embed (EmbedServer)
          ├── image (Image)
          └── container (Container)
      └── environment (EnvironmentOutput)
          └── output (TerraformOutput)
      "
    `);
  });

  test("keeps its addresses", () => {
    expect(addresses(single())).toMatchInlineSnapshot(`
      [
        "docker_container.embed_container_3CD7E964",
        "docker_container.triton-onnx_container_43472A6F",
        "docker_container.triton-trt_container_4D787DD7",
        "docker_container.triton-trt_engine-cache_owner_989364C6",
        "docker_image.embed_image_B244CA32",
        "docker_image.triton-onnx_image_3C3EF92D",
        "docker_image.triton-trt_image_F52397DD",
        "docker_network.host_network_CDA70515",
        "docker_volume.triton-trt_engine-cache_volume_0F167511",
      ]
    `);
  });

  test("offers all five protocol paths", () => {
    const { services } = synthesized(single()).environment;
    const paths = services.flatMap(({ endpoints }) => endpoints.map(({ path }) => path));
    expect(paths.filter((path) => path !== undefined)).toEqual([
      "embed-http",
      "onnx-http",
      "onnx-grpc",
      "trt-http",
      "trt-grpc",
    ]);
  });

  test("leaves out what is not enabled", () => {
    expect(servicesOf(single("tritonTrt: { enabled: false }"))).toEqual(["embed", "triton-onnx"]);
    expect(servicesOf(single("embed: { enabled: false }"))).toEqual(["triton-onnx", "triton-trt"]);
  });

  test("turns the embed server into a gateway when its engine is triton", () => {
    const [embed] = synthesized(single("embed: { engine: triton, upstream: triton-trt }"))
      .environment.services;
    expect(embed).toMatchObject({ backend: "triton", model: "openclip_vit_b32_trt" });
  });

  test("deploys the same services without a GPU", () => {
    const { json, environment: output } = synthesized(single("accelerator: cpu"));
    expect(output.services.map(({ name }) => name)).toEqual(["embed", "triton-onnx", "triton-trt"]);
    expect(output.accelerator).toBe("cpu");
    expect(JSON.stringify(json)).not.toMatch(/NVIDIA_|"gpus"|"runtime"/);
  });
});

describe("multi-gpu-4x", () => {
  test("is a host with a gateway and two Tritons over all GPUs", () => {
    expect(tree(multi())).toMatchInlineSnapshot(`
      "multi-gpu-4x (MultiGpu4xStack)
      ├── backend (LocalBackend)
      ├── host (GpuHost)
          ├── docker (DockerProvider)
          └── network (Network)
      ├── triton-onnx (TritonServer)
          ├── image (Image)
          └── container (Container)
      ├── triton-trt (TritonServer)
          ├── image (Image)
          ├── engine-cache (EngineCache)
              ├── volume (Volume)
              └── owner (Container)
          └── container (Container)
      ├── embed (EmbedServer)
          ├── image (Image)
          └── container (Container)
      └── environment (EnvironmentOutput)
          └── output (TerraformOutput)
      "
    `);
  });

  test("keeps its addresses", () => {
    expect(addresses(multi())).toMatchInlineSnapshot(`
      [
        "docker_container.embed_container_3CD7E964",
        "docker_container.triton-onnx_container_43472A6F",
        "docker_container.triton-trt_container_4D787DD7",
        "docker_container.triton-trt_engine-cache_owner_989364C6",
        "docker_image.embed_image_B244CA32",
        "docker_image.triton-onnx_image_3C3EF92D",
        "docker_image.triton-trt_image_F52397DD",
        "docker_network.host_network_CDA70515",
        "docker_volume.triton-trt_engine-cache_volume_0F167511",
      ]
    `);
  });

  test("keeps its addresses with one Triton for each GPU", () => {
    expect(addresses(multi("topology: per-gpu"))).toMatchInlineSnapshot(`
      [
        "docker_container.embed_container_3CD7E964",
        "docker_container.triton-0_container_092932FC",
        "docker_container.triton-1_container_4BD55C91",
        "docker_container.triton-2_container_010E79DC",
        "docker_container.triton-3_container_093096C5",
        "docker_image.embed_image_B244CA32",
        "docker_image.triton-0_image_B85DC580",
        "docker_image.triton-1_image_60F5B23B",
        "docker_image.triton-2_image_B0383A40",
        "docker_image.triton-3_image_0F719CB2",
        "docker_network.host_network_CDA70515",
      ]
    `);
  });

  test("asks the ONNX Triton unless it is told to ask the other", () => {
    const grpcUrls = (yaml: string) =>
      JSON.stringify(synthesized(multi(yaml)).json).match(/TRITON_GRPC_URLS=([^"]*)/)?.[1];
    expect(grpcUrls("")).toBe("multi-gpu-4x-triton-onnx:8001");
    expect(grpcUrls("embed: { upstream: triton-trt }")).toBe("multi-gpu-4x-triton-trt:8001");
    expect(grpcUrls("topology: per-gpu")).toBe(
      [0, 1, 2, 3].map((index) => `multi-gpu-4x-triton-${index}:8001`).join(","),
    );
  });

  test("gives each Triton one GPU and its own ports with the topology per-gpu", () => {
    const { containers, environment: output } = synthesized(multi("topology: per-gpu"));
    const devices = containers
      .filter(({ name }) => name.includes("-triton-"))
      .map((container) => (container as { gpus?: string }).gpus);
    expect(devices).toEqual(["device=0", "device=1", "device=2", "device=3"]);
    expect(output.services.slice(1).map(({ endpoints }) => endpoints[0]?.url)).toEqual([
      "http://127.0.0.1:8010",
      "http://127.0.0.1:8020",
      "http://127.0.0.1:8030",
      "http://127.0.0.1:8040",
    ]);
  });

  test("gives each Triton its own engine cache with TensorRT for each GPU", () => {
    const { json } = synthesized(multi("topology: per-gpu\nperGpu: { backend: tensorrt }"));
    const names = Object.values(json.resource.docker_volume as Record<string, { name: string }>);
    expect(new Set(names.map(({ name }) => name)).size).toBe(4);
  });

  test("fails on GPU 4 of 4", () => {
    expect(findingsOf(multi("tritonOnnx: { gpus: [0, 1, 2, 4] }"))).toEqual([
      "multi-gpu-4x/triton-onnx: gpus must be 0 to 3 (host.count is 4), got 4",
    ]);
  });

  test("fails on a number of GPUs that no model configuration is for", () => {
    expect(findingsOf(multi("tritonOnnx: { gpus: [0, 1] }"))).toEqual([
      "multi-gpu-4x/triton-onnx: gpus must list 1 or 4 of them, as the configurations of openclip_vit_b32 do, got 2: 0, 1",
    ]);
  });
});

describe("kind-local", () => {
  test("is a cluster with a namespace and the embed server", () => {
    expect(tree(kind())).toMatchInlineSnapshot(`
      "kind-local (KindLocalStack)
      ├── backend (LocalBackend)
      ├── cluster (KindCluster)
          ├── cluster (DataResource)
          ├── images (DataResource)
          └── kubernetes (KubernetesProvider)
      ├── namespace (InferenceNamespace)
          ├── namespace (NamespaceV1)
          ├── quota (ResourceQuotaV1)
          └── limit-range (LimitRangeV1)
      ├── embed (InferenceDeployment)
          ├── deployment (DeploymentV1)
          ├── service (ServiceV1)
          ├── autoscaler (HorizontalPodAutoscalerV2)
          └── budget (PodDisruptionBudgetV1)
      └── environment (EnvironmentOutput)
          └── output (TerraformOutput)
      "
    `);
  });

  test("keeps its addresses", () => {
    expect(addresses(kind())).toMatchInlineSnapshot(`
      [
        "kubernetes_deployment_v1.embed_deployment_784340A4",
        "kubernetes_horizontal_pod_autoscaler_v2.embed_autoscaler_2385697D",
        "kubernetes_limit_range_v1.namespace_limit-range_6A77F9D5",
        "kubernetes_namespace_v1.namespace_67941C3A",
        "kubernetes_pod_disruption_budget_v1.embed_budget_B7E944F0",
        "kubernetes_resource_quota_v1.namespace_quota_6F4CBB7B",
        "kubernetes_service_v1.embed_service_38E2C1EF",
        "terraform_data.cluster_A4C38409",
        "terraform_data.cluster_images_C8A4B739",
      ]
    `);
  });

  test("is reached on the port that kind maps", () => {
    const mapped = "cluster: { portMappings: [{ nodePort: 30092, hostPort: 9999 }] }";
    const [embed] = synthesized(kind(mapped)).environment.services;
    expect(embed?.endpoints[0]?.url).toBe("http://127.0.0.1:9999");
  });
});

describe("rules between settings", () => {
  test("fail on a relative model repository on another machine", () => {
    expect(findingsOf(multi("host: { docker: ssh://gpu@gpu-1 }"))).toEqual([
      "multi-gpu-4x: modelRepository must be an absolute path when host.docker is ssh://, got 'model_repository'",
    ]);
    const absolute = "host: { docker: ssh://gpu@gpu-1 }\nmodelRepository: /srv/models";
    expect(findingsOf(multi(absolute))).toEqual([]);
  });

  test("fail when the gateway asks a Triton that is left out", () => {
    const gateway =
      "embed: { engine: triton, upstream: triton-trt }\ntritonTrt: { enabled: false }";
    expect(findingsOf(single(gateway))).toEqual([
      "single-gpu: embed.upstream must name a service that is enabled (tritonTrt.enabled is false), got 'triton-trt'",
    ]);
    expect(findingsOf(multi("tritonOnnx: { enabled: false }"))).toEqual([
      "multi-gpu-4x: embed.upstream must name a service that is enabled (tritonOnnx.enabled is false), got 'triton-onnx'",
    ]);
    expect(findingsOf(multi("topology: per-gpu\ntritonOnnx: { enabled: false }"))).toEqual([]);
    expect(findingsOf(single("tritonOnnx: { enabled: false }"))).toEqual([]);
  });

  test("fail when every service is left out", () => {
    const nothing =
      "embed: { enabled: false }\ntritonOnnx: { enabled: false }\ntritonTrt: { enabled: false }";
    expect(findingsOf(single(nothing))).toEqual([
      "single-gpu: embed.enabled must be true, or tritonOnnx.enabled, or tritonTrt.enabled, got false",
    ]);
  });

  test("fail when a budget says both, or nothing", () => {
    const rule = "kind-local/embed: budget must set either maxUnavailable or minAvailable, got";
    expect(findingsOf(kind("budget: { maxUnavailable: 1, minAvailable: 1 }"))).toEqual([
      `${rule} {"maxUnavailable":1,"minAvailable":1}`,
    ]);
    expect(findingsOf(kind("budget: {}"))).toEqual([`${rule} {}`]);
  });

  test("fail together with what the constructs find", () => {
    const yaml =
      "host: { docker: ssh://gpu-1 }\nembed: { port: 8020 }\ntritonOnnx: { enabled: false }";
    expect(findingsOf(multi(yaml))).toEqual([
      "multi-gpu-4x: modelRepository must be an absolute path when host.docker is ssh://, got 'model_repository'",
      "multi-gpu-4x: embed.upstream must name a service that is enabled (tritonOnnx.enabled is false), got 'triton-onnx'",
      "multi-gpu-4x/embed: port must be free on the host, got 8020, which triton-trt (ports.http) has",
    ]);
  });
});

describe("every stack", () => {
  const stacks = [
    ["single-gpu", single],
    ["multi-gpu-4x", multi],
    ["multi-gpu-4x, per-gpu", () => multi("topology: per-gpu")],
    ["kind-local", kind],
  ] as const satisfies readonly (readonly [string, () => Stack])[];

  test.each(stacks)("%s passes its own checks", (_, build) => {
    expect(findingsOf(build())).toEqual([]);
  });

  test.each(stacks)("%s synthesizes the same text every time", (_, build) => {
    expect(Testing.synth(build(), true)).toBe(Testing.synth(build(), true));
  });

  test.each(stacks)("%s keeps its state in the project, by a relative path", (_, build) => {
    const stack = build();
    expect(synthesized(stack).json.terraform.backend).toEqual({
      local: { path: `../../../terraform.${stack.node.id}.tfstate` },
    });
  });

  test.each(stacks)("%s names the resource of every service", (_, build) => {
    const stack = build();
    const known = addresses(stack);
    const named = synthesized(stack).environment.services.flatMap(({ resources }) =>
      Object.values(resources),
    );
    expect(named.length).toBeGreaterThan(0);
    for (const address of named) expect(known).toContain(address);
  });

  test.each(stacks.slice(0, 3))("%s has a health check for each service", (_, build) => {
    const { json, environment: output } = synthesized(build());
    for (const { resources } of output.services) {
      const [type = "", id = ""] = (resources.container ?? "").split(".");
      expect(json.resource[type][id].healthcheck.test[0]).toBe("CMD");
    }
  });
});
