import { describe, expect, test } from "vitest";
import { gpuCatalogue } from "../../contract/gpus.ts";
import {
  gpuIndexFindings as gpuIndexFindingsOf,
  gpuNamingFindings as gpuNamingFindingsOf,
  variantGpuFindings as variantGpuFindingsOf,
} from "./gpus.ts";
import {
  imageFindings as imageFindingsOf,
  releaseFindings as releaseFindingsOf,
  tritonOptionFindings as tritonOptionFindingsOf,
} from "./images.ts";
import {
  autoscalerFindings as autoscalerFindingsOf,
  budgetFindings as budgetFindingsOf,
  quotaFindings as quotaFindingsOf,
  type Resources,
  resourceFindings as resourceFindingsOf,
} from "./kubernetes.ts";
import {
  exposureFindings as exposureFindingsOf,
  nodePortFindings as nodePortFindingsOf,
  portConflicts as portConflictsOf,
} from "./ports.ts";
import { stopSeconds, stopTimeFindings as stopTimeFindingsOf } from "./stop-times.ts";
import { rendered } from "./test-rendered.ts";
import { vramFindings as vramFindingsOf, vramMiB } from "./vram.ts";
import { weightsFindings as weightsFindingsOf } from "./weights.ts";

const gpuIndexFindings = rendered(gpuIndexFindingsOf);
const gpuNamingFindings = rendered(gpuNamingFindingsOf);
const variantGpuFindings = rendered(variantGpuFindingsOf);
const imageFindings = rendered(imageFindingsOf);
const releaseFindings = rendered(releaseFindingsOf);
const tritonOptionFindings = rendered(tritonOptionFindingsOf);
const autoscalerFindings = rendered(autoscalerFindingsOf);
const budgetFindings = rendered(budgetFindingsOf);
const quotaFindings = rendered(quotaFindingsOf);
const resourceFindings = rendered(resourceFindingsOf);
const exposureFindings = rendered(exposureFindingsOf);
const nodePortFindings = rendered(nodePortFindingsOf);
const portConflicts = rendered(portConflictsOf);
const stopTimeFindings = rendered(stopTimeFindingsOf);
const vramFindings = rendered(vramFindingsOf);
const weightsFindings = rendered(weightsFindingsOf);

describe("host ports", () => {
  const triton = { service: "triton-onnx", prop: "ports.http", port: 8010 };

  test("accepts different ports", () => {
    expect(portConflicts([{ ...triton, port: 8020 }], [triton])).toEqual([]);
  });

  test("names the service that has a port already", () => {
    const mine = { service: "triton-trt", prop: "ports.grpc", port: 8010 };
    expect(portConflicts([mine], [triton])).toEqual([
      "ports.grpc must be free on the host, got 8010, which triton-onnx (ports.http) has",
    ]);
  });

  test("finds a port that a service wants twice", () => {
    const again = { ...triton, prop: "ports.metrics" };
    expect(portConflicts([triton, again], [])).toEqual([
      "ports.metrics must be free on the host, got 8010, which triton-onnx (ports.http) has",
    ]);
  });
});

describe("exposure", () => {
  test("accepts a Triton that everybody reaches only where that is said", () => {
    expect(exposureFindings("loopback", false, "explicit")).toEqual([]);
    expect(exposureFindings("all-interfaces", true, "none")).toEqual([]);
    expect(exposureFindings("all-interfaces", false, "none")).toEqual([
      expect.stringMatching(/^expose must be loopback: .* got 'all-interfaces'$/),
    ]);
  });

  test("let nobody else change what Triton serves", () => {
    expect(exposureFindings("all-interfaces", true, "explicit")).toEqual([]);
    expect(exposureFindings("all-interfaces", true, "open")).toEqual([
      expect.stringMatching(
        /^modelControl must be explicit or none if all interfaces reach Triton: .* got 'open'$/,
      ),
    ]);
  });
});

describe("weights", () => {
  test("of an image need model control, since it has several models", () => {
    expect(weightsFindings("volume", "none")).toEqual([]);
    expect(weightsFindings("image", "explicit")).toEqual([]);
    expect(weightsFindings("image", "none")).toEqual([
      "modelControl must be explicit when weights is image, or Triton loads every model that the image has, got 'none'",
    ]);
  });
});

describe("NodePort", () => {
  test("accepts one that kind maps", () => {
    expect(nodePortFindings(30092, [30092])).toEqual([]);
  });

  test("fails when kind does not map it", () => {
    expect(nodePortFindings(30093, [30092, 30094])).toEqual([
      "nodePort must be one that kind maps (cluster.portMappings: 30092, 30094), got 30093",
    ]);
  });

  test("fails outside the range of Kubernetes", () => {
    expect(nodePortFindings(8092, [8092])).toEqual(["nodePort must be 30000 to 32767, got 8092"]);
    expect(nodePortFindings(32768, [32768])).toHaveLength(1);
    expect(nodePortFindings(32767, [32767])).toEqual([]);
    expect(nodePortFindings(30000, [30000])).toEqual([]);
  });
});

describe("GPUs", () => {
  test("accepts those of the host", () => {
    expect(gpuIndexFindings([0, 1, 2, 3], 4)).toEqual([]);
  });

  test("fails on GPU 4 of 4", () => {
    expect(gpuIndexFindings([0, 4], 4)).toEqual(["gpus must be 0 to 3 (host.count is 4), got 4"]);
  });

  test("fails on a GPU that is listed twice", () => {
    expect(gpuIndexFindings([1, 1], 4)).toEqual(["gpus must not repeat a GPU, got 1 twice"]);
  });

  test("fails on an empty list", () => {
    expect(gpuIndexFindings([], 4)).toEqual(["gpus must list at least one GPU, got []"]);
  });

  test("accepts UUIDs, as many as the host has", () => {
    expect(gpuIndexFindings(["GPU-a", "GPU-b"], 2)).toEqual([]);
    expect(gpuNamingFindings(["GPU-a", "GPU-b"], 2)).toEqual([]);
    expect(gpuNamingFindings([0, 1], 2)).toEqual([]);
  });

  test("fails on a UUID that is listed twice, on more than the host has, and beside an index", () => {
    expect(gpuIndexFindings(["GPU-a", "GPU-a"], 2)).toEqual([
      "gpus must not repeat a GPU, got GPU-a twice",
    ]);
    expect(gpuNamingFindings(["GPU-a", "GPU-b"], 1)).toEqual([
      "gpus must be at most 1 UUIDs (host.count is 1), got 2: GPU-a, GPU-b",
    ]);
    expect(gpuNamingFindings([1, "GPU-a"], 2)).toEqual([
      "gpus must be named all by index or all by UUID, got 1 and GPU-a",
    ]);
  });

  test("accepts as many GPUs as a model configuration uses, whichever they are", () => {
    expect(variantGpuFindings([4, 5, 6, 7], 8, "openclip_vit_b32")).toEqual([]);
    expect(variantGpuFindings([3], 4, "openclip_vit_b32_trt")).toEqual([]);
    expect(variantGpuFindings([], 4, "openclip_vit_b32")).toEqual([]);
  });

  test("fails on a number of GPUs that no model configuration is for", () => {
    expect(variantGpuFindings([0, 1], 4, "openclip_vit_b32")).toEqual([
      "gpus must list 1 or 4 GPUs, as the model configurations of openclip_vit_b32 require, got 2: 0, 1",
    ]);
  });

  test("says nothing of the number while an index is wrong", () => {
    expect(variantGpuFindings([0, 9], 4, "openclip_vit_b32")).toEqual([]);
  });
});

describe("VRAM", () => {
  const services = [
    { service: "embed", backend: "onnxruntime", instances: 1 },
    { service: "triton-onnx", backend: "onnxruntime", instances: 1 },
    { service: "triton-trt", backend: "tensorrt", instances: 1 },
  ] as const;

  test("estimates all three services at the published 2.8 to 3.3 GB", () => {
    const bytes = services.reduce((sum, use) => sum + vramMiB(use), 0) * 1024 * 1024;
    expect(bytes / 1e9).toBeGreaterThan(2.8);
    expect(bytes / 1e9).toBeLessThan(3.35);
  });

  test("accepts all three services on the smallest GPU of the catalogue", () => {
    expect(vramFindings(0, services, 15_360)).toEqual([]);
  });

  test("fails when the models do not fit, and says what needs how much", () => {
    expect(vramFindings(2, services, 4_096)).toEqual([
      "gpu must have room for the models: GPU 2 has 4096 MiB, 3686 usable, and they need 4170 (embed 1105 + triton-onnx 1105 + triton-trt 936 + a TensorRT build 1024)",
    ]);
  });

  test("counts every execution instance", () => {
    const two = vramMiB({ service: "triton-onnx", backend: "onnxruntime", instances: 2 });
    expect(two - vramMiB(services[1])).toBe(337 + 256);
  });
});

describe("images", () => {
  test.each([
    "nvcr.io/nvidia/tritonserver:26.07-py3",
    "registry.example:5000/clipstack/embed:1.0",
    "pytorch:nightly-2026-11-20",
    "embed:main-3f2c1ab",
    `name@sha256:${"0".repeat(64)}`,
  ])("accepts %s", (image) => {
    expect(imageFindings(image)).toEqual([]);
  });

  test.each([
    "tritonserver:latest",
    "tritonserver",
    "registry.example:5000/embed",
    "nginx:main",
    "nginx:stable-alpine",
    "embed:Nightly",
  ])("fails on %s, which does not say a version", (image) => {
    expect(imageFindings(image)).toEqual([
      `image must name a version, like 'name:1.2' or better 'name@sha256:…', got '${image}'`,
    ]);
  });

  test("fails on a digest that is none", () => {
    expect(imageFindings("name@sha256:12")).toEqual([
      "image must end in '@sha256:' and 64 hexadecimal digits, got 'name@sha256:12'",
    ]);
  });
});

describe("GPU and image", () => {
  test("fails on a GPU that is newer than the image", () => {
    expect(releaseFindings("nvcr.io/nvidia/tritonserver:24.12-py3", gpuCatalogue.b200)).toEqual([
      "image must be 25.01 or newer for NVIDIA B200 SXM 180 GB (Blackwell), got 'nvcr.io/nvidia/tritonserver:24.12-py3'",
    ]);
  });

  test.each(Object.values(gpuCatalogue))("accepts the default image for $label", (gpu) => {
    expect(releaseFindings("nvcr.io/nvidia/tritonserver:26.07-py3", gpu)).toEqual([]);
  });

  test("fails on a Triton that is too old for the options of the stacks", () => {
    expect(tritonOptionFindings("nvcr.io/nvidia/tritonserver:24.05-py3")).toEqual([
      "image must be 24.06 or newer, because older Tritons reject --model-config-name, got 'nvcr.io/nvidia/tritonserver:24.05-py3'",
    ]);
    expect(tritonOptionFindings("nvcr.io/nvidia/tritonserver:24.06-py3")).toEqual([]);
    expect(tritonOptionFindings("my/triton:1.0")).toEqual([]);
  });

  test("says nothing of an image whose release it cannot read", () => {
    const digest = `tritonserver@sha256:${"0".repeat(64)}`;
    expect(releaseFindings(digest, gpuCatalogue.b200)).toEqual([]);
    expect(releaseFindings("my/triton:1.0", gpuCatalogue.b200)).toEqual([]);
  });
});

describe("cluster", () => {
  const resources: Resources = {
    requests: { cpuMillicores: 250, memoryMiB: 1024 },
    limits: { cpuMillicores: 1000, memoryMiB: 1536 },
  };
  const quota = {
    requests: { cpuMillicores: 1750, memoryMiB: 7168 },
    limits: { cpuMillicores: 7000, memoryMiB: 10_752 },
    pods: 10,
  };
  const replicas = { minReplicas: 2, maxReplicas: 6 };

  test("accepts a maximum that fits the quota with one more pod", () => {
    expect(quotaFindings(replicas, 1, resources, quota)).toEqual([]);
  });

  test("fails when a rolling update at the maximum would not fit", () => {
    expect(quotaFindings({ ...replicas, maxReplicas: 7 }, 1, resources, quota)).toEqual([
      "autoscaler.maxReplicas must be at most 6 to fit quota.requests.cpuMillicores 1750 (250 per pod, and a rolling update adds 1 pod), got 7",
    ]);
  });

  test.each([
    ["requests", "cpuMillicores", 1_749],
    ["requests", "memoryMiB", 7_167],
    ["limits", "cpuMillicores", 6_999],
    ["limits", "memoryMiB", 10_751],
  ] as const)("fails when %s.%s is what runs out first", (side, quantity, hard) => {
    const tight = { ...quota, [side]: { ...quota[side], [quantity]: hard } };
    const [finding] = quotaFindings(replicas, 1, resources, tight);
    expect(finding).toContain(`must be at most 5 to fit quota.${side}.${quantity} ${hard} (`);
  });

  test("fails when the quota admits too few pods", () => {
    expect(quotaFindings(replicas, 1, resources, { ...quota, pods: 6 })).toEqual([
      "autoscaler.maxReplicas must be at most 5 to fit quota.pods 6 (1 per pod, and a rolling update adds 1 pod), got 6",
    ]);
  });

  test("names each quota in which not one pod fits, and what it must be", () => {
    const tiny = { ...quota, requests: { cpuMillicores: 499, memoryMiB: 1024 } };
    expect(quotaFindings(replicas, 1, resources, tiny)).toEqual([
      "quota.requests.cpuMillicores must be at least 1750 for autoscaler.maxReplicas 6 (250 per pod, and a rolling update adds 1 pod), got 499",
      "quota.requests.memoryMiB must be at least 7168 for autoscaler.maxReplicas 6 (1024 per pod, and a rolling update adds 1 pod), got 1024",
    ]);
    const one = { ...quota, requests: { ...quota.requests, cpuMillicores: 500 } };
    expect(quotaFindings(replicas, 1, resources, one)[0]).toMatch(
      /^autoscaler\.maxReplicas must be at most 1 /,
    );
  });

  test("fails when the minimum is above the maximum", () => {
    expect(autoscalerFindings({ minReplicas: 4, maxReplicas: 2 })).toEqual([
      "autoscaler.minReplicas must not exceed autoscaler.maxReplicas (2), got 4",
    ]);
    expect(autoscalerFindings({ minReplicas: 2, maxReplicas: 2 })).toEqual([]);
  });

  test("fails on a budget that allows no eviction", () => {
    expect(budgetFindings({ maxUnavailable: 0 }, replicas)).toEqual([
      "budget.maxUnavailable must be at least 1, or no node can be drained, got 0",
    ]);
    expect(budgetFindings({ minAvailable: 2 }, replicas)).toEqual([
      "budget.minAvailable must be less than autoscaler.minReplicas (2), or no node can be drained, got 2",
    ]);
  });

  test("fails on a budget that lets the only pod never go", () => {
    const one = { minReplicas: 1, maxReplicas: 6 };
    expect(budgetFindings({ maxUnavailable: 0 }, one)).toEqual([
      "budget.maxUnavailable must be at least 1, or no node can be drained, got 0",
    ]);
    expect(budgetFindings({ minAvailable: 1 }, one)).toEqual([
      "budget.minAvailable must be less than autoscaler.minReplicas (1), or no node can be drained; set maxUnavailable to 1 instead, got 1",
    ]);
    expect(budgetFindings({ maxUnavailable: 1 }, one)).toEqual([]);
    expect(budgetFindings({ maxUnavailable: 6 }, one)).toEqual([]);
  });

  test("fails on a budget that lets all pods go at once", () => {
    for (const maxUnavailable of [2, 6]) {
      expect(budgetFindings({ maxUnavailable }, replicas)).toEqual([
        `budget.maxUnavailable must be less than autoscaler.minReplicas (2), or all pods may be unavailable at once, got ${maxUnavailable}`,
      ]);
    }
    expect(budgetFindings({ minAvailable: 0 }, replicas)).toEqual([
      "budget.minAvailable must be at least 1, or all pods may be unavailable at once, got 0",
    ]);
  });

  test("accepts a budget that allows one eviction at the minimum", () => {
    expect(budgetFindings({ maxUnavailable: 1 }, replicas)).toEqual([]);
    expect(budgetFindings({ minAvailable: 1 }, replicas)).toEqual([]);
  });

  test("fails when a container may have more than the LimitRange, or asks for more than it may have", () => {
    const max = { cpuMillicores: 800, memoryMiB: 4096 };
    const wrong = { ...resources, requests: { cpuMillicores: 250, memoryMiB: 2048 } };
    expect(resourceFindings(wrong, max)).toEqual([
      "resources.limits.cpuMillicores must be at most limitRange.max.cpuMillicores (800), got 1000",
      "resources.requests.memoryMiB must not exceed resources.limits.memoryMiB (1536), got 2048",
    ]);
    expect(resourceFindings(resources, { cpuMillicores: 1000, memoryMiB: 1536 })).toEqual([]);
  });
});

describe("stop times", () => {
  test("add up what happens before the kill", () => {
    expect(stopSeconds(30)).toBe(35);
    expect(stopSeconds(30, 5)).toBe(40);
  });

  test("accepts the sum, and fails below it", () => {
    expect(stopTimeFindings("stopTimeout", 35, 30)).toEqual([]);
    expect(stopTimeFindings("stopTimeout", 34, 30)).toEqual([
      "stopTimeout must be at least 35 (30 of grace + 5), got 34",
    ]);
    expect(stopTimeFindings("terminationGracePeriodSeconds", 30, 30, 5)).toEqual([
      "terminationGracePeriodSeconds must be at least 40 (5 before the stop + 30 of grace + 5), got 30",
    ]);
  });

  test("fails when nothing is set: the default of the engine is 10 seconds", () => {
    expect(stopTimeFindings("stopTimeout", undefined, 30)).toEqual([
      "stopTimeout must be at least 35 (30 of grace + 5), got nothing",
    ]);
  });
});
