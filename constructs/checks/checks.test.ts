import { describe, expect, test } from "vitest";
import { gpuCatalogue, migMemoryMiB } from "../../contract/gpus.ts";
import { defaultModels, modelCatalogue } from "../../contract/models/index.ts";
import { gpuIndexFindings, gpuNamingFindings, migFindings } from "./gpus.ts";
import { imageFindings, releaseFindings, tritonOptionFindings } from "./images.ts";
import { budgetFindings, quotaFindings, type Resources, resourceFindings } from "./kubernetes.ts";
import { exposureFindings, nodePortFindings, portConflicts } from "./ports.ts";
import { stopSeconds, stopTimeFindings } from "./stop-times.ts";
import { vramFindings, vramMiB } from "./vram.ts";
import { weightsFindings } from "./weights.ts";

describe("host ports", () => {
  const triton = { service: "triton-onnx", prop: "ports.http", port: 8010 };

  test("names the service that uses the port", () => {
    const duplicate = { service: "triton-trt", prop: "ports.grpc", port: 8010 };
    expect(portConflicts([duplicate], [triton]).map(({ finding }) => finding)).toEqual([
      "ports.grpc must be free on the host, got 8010, which triton-onnx (ports.http) uses",
    ]);
  });
});

describe("exposure", () => {
  test("requires allowUnauthenticated for an exposed Triton", () => {
    expect(exposureFindings("loopback", false, "explicit")).toEqual([]);
    expect(exposureFindings("all-interfaces", true, "none")).toEqual([]);
    expect(exposureFindings("all-interfaces", false, "none")).toEqual([
      expect.stringMatching(/^expose must be loopback: .* got 'all-interfaces'$/),
    ]);
  });

  test("rejects open model control on an exposed Triton", () => {
    expect(exposureFindings("all-interfaces", true, "explicit")).toEqual([]);
    expect(exposureFindings("all-interfaces", true, "open")).toEqual([
      expect.stringMatching(
        /^modelControl must be explicit or none if all interfaces reach Triton: .* got 'open'$/,
      ),
    ]);
  });
});

describe("weights", () => {
  test("in an image require model control, because the image has several models", () => {
    expect(weightsFindings("volume", "none")).toEqual([]);
    expect(weightsFindings("image", "explicit")).toEqual([]);
    expect(weightsFindings("image", "explicit", 2)).toEqual([
      "modelVersions must not be set when weights is image, because an image has one version, got 2",
    ]);
    expect(weightsFindings("image", "none")).toEqual([
      "modelControl must be explicit when weights is image, or Triton loads every model that the image has, got 'none'",
    ]);
  });
});

describe("NodePort", () => {
  test("rejects a port that kind does not map", () => {
    expect(nodePortFindings(30093, [30092, 30094])).toEqual([
      "nodePort must be one that kind maps (cluster.portMappings: 30092, 30094), got 30093",
    ]);
  });

  test("rejects ports outside the range of Kubernetes", () => {
    expect(nodePortFindings(8092, [8092])).toEqual(["nodePort must be 30000 to 32767, got 8092"]);
    expect(nodePortFindings(32768, [32768])).toHaveLength(1);
    expect(nodePortFindings(32767, [32767])).toEqual([]);
    expect(nodePortFindings(30000, [30000])).toEqual([]);
  });
});

describe("GPUs", () => {
  test("rejects a repeated GPU", () => {
    expect(gpuIndexFindings([1, 1], 4)).toEqual(["gpus must not repeat a GPU, got 1 twice"]);
  });

  test("rejects repeated UUIDs, too many UUIDs and a mix of UUIDs and indices", () => {
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
});

describe("MIG devices", () => {
  test("are not limited by the number of GPUs, and are not mixed with indices", () => {
    expect(gpuNamingFindings(["MIG-a", "MIG-b"], 1)).toEqual([]);
    expect(gpuNamingFindings([0, "MIG-a"], 2)).toEqual([
      "gpus must be named all by index or all by UUID, got 0 and MIG-a",
    ]);
  });

  test("are one per container, with their profile", () => {
    expect(migFindings(["MIG-a"], "1g.10gb")).toEqual([]);
    expect(migFindings([0, 1], undefined)).toEqual([]);
    expect(migFindings(["MIG-a", "MIG-b"], undefined)).toEqual([
      "gpus must list one MIG device, because a CUDA process uses only one: several need a Triton server each (topology per-gpu), got MIG-a, MIG-b",
      "host.migProfile must be set if gpus has MIG devices: the models must fit their memory, got nothing",
    ]);
  });

  test("have the memory of their profile", () => {
    expect(migMemoryMiB("1g.10gb")).toBe(9536);
    expect(migMemoryMiB("nvidia.com/mig-3g.40gb")).toBe(38146);
    expect(migMemoryMiB("nvidia.com/gpu.shared")).toBeUndefined();
  });
});

describe("GPU memory", () => {
  const services = [
    { service: "embed", backend: "onnxruntime", instances: 1, models: defaultModels },
    { service: "triton-onnx", backend: "onnxruntime", instances: 1, models: defaultModels },
    { service: "triton-trt", backend: "tensorrt", instances: 1, models: defaultModels },
  ] as const;

  test("estimates all three services at the published 2.8 to 3.3 GB", () => {
    const bytes = services.reduce((sum, use) => sum + vramMiB(use), 0) * 1024 * 1024;
    expect(bytes / 1e9).toBeGreaterThan(2.8);
    expect(bytes / 1e9).toBeLessThan(3.35);
  });

  test("accepts all three services on the smallest GPU of the catalogue", () => {
    expect(vramFindings(0, services, 15_360)).toEqual([]);
  });

  test("rejects models that do not fit and lists the memory of each", () => {
    expect(vramFindings(2, services, 4_096)).toEqual([
      "gpu must have room for the models: GPU 2 has 4096 MiB, 3686 usable, and they need 4168 (embed 1104 + triton-onnx 1104 + triton-trt 936 + a TensorRT build 1024): serve fewer models or towers, disable a service, or use a GPU with more memory",
    ]);
  });

  test("counts the weights of PyTorch in FP32 and in FP16, to which autocast converts them", () => {
    const use = { ...services[0], backend: "pytorch" } as const;
    expect(vramMiB(use) - vramMiB(services[0])).toBe(168);
  });

  test("counts every execution instance", () => {
    expect(vramMiB({ ...services[1], versions: 2 })).toBe(
      vramMiB({ ...services[1], instances: 2 }),
    );
    const two = vramMiB({ ...services[1], instances: 2 });
    expect(two - vramMiB(services[1])).toBe(336 + 256);
  });

  test("counts a version under a second name and its reload if versions can be added", () => {
    const use = { ...services[1], reloads: true };
    const reloadOf = (versions?: number) => {
      const [line = ""] = vramFindings(0, [{ ...use, ...(versions && { versions }) }], 100);
      return Number(/a reload of triton-onnx (\d+)/.exec(line)?.[1]);
    };
    expect(reloadOf(1)).toBe(2 * reloadOf());
    expect(reloadOf(3)).toBe(reloadOf(1));
  });

  test("lists services and models with the same sum", () => {
    const models = ["openclip-vit-l14", "siglip2-base-224"].map(
      (name) => modelCatalogue.get(name)!,
    );
    const uses = services.map((use) => ({ ...use, reloads: use.service !== "embed", models }));
    const [line = ""] = vramFindings(0, uses, 4_096);
    const needed = Number(/they need (\d+)/.exec(line)?.[1]);
    const [byService = "", byModel = ""] = line.slice(line.indexOf("(")).split("; by model: ");
    for (const list of [byService, byModel]) {
      const terms = [...list.matchAll(/ (\d+)(?= \+|;|\)|$)/g)];
      expect(terms.reduce((sum, [, miB]) => sum + Number(miB), 0)).toBe(needed);
    }
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
  ])("rejects %s, which has no version", (image) => {
    expect(imageFindings(image)).toEqual([
      `image must name a version, like 'name:1.2' or better 'name@sha256:…', got '${image}'`,
    ]);
  });

  test("rejects an invalid digest", () => {
    expect(imageFindings("name@sha256:12")).toEqual([
      "image must end in '@sha256:' and 64 hexadecimal digits, got 'name@sha256:12'",
    ]);
  });
});

describe("GPU and image", () => {
  test.each(Object.values(gpuCatalogue))("accepts the default image for $label", (gpu) => {
    expect(releaseFindings("nvcr.io/nvidia/tritonserver:26.07-py3", gpu)).toEqual([]);
  });

  test("rejects a Triton server that is too old for the options of the stacks", () => {
    expect(tritonOptionFindings("nvcr.io/nvidia/tritonserver:24.05-py3")).toEqual([
      "image must be 24.06 or newer, because older Triton servers reject --model-config-name, got 'nvcr.io/nvidia/tritonserver:24.05-py3'",
    ]);
    expect(tritonOptionFindings("nvcr.io/nvidia/tritonserver:24.06-py3")).toEqual([]);
    expect(tritonOptionFindings("my/triton:1.0")).toEqual([]);
  });

  test("accepts an image of an unknown release", () => {
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

  test("rejects a maximum that leaves no room for a rolling update", () => {
    expect(quotaFindings({ ...replicas, maxReplicas: 7 }, 1, resources, quota)).toEqual([
      "autoscaler.maxReplicas must be at most 6 to fit quota.requests.cpuMillicores 1750 (250 per pod, and a rolling update adds 1 pod), got 7",
    ]);
  });

  test.each([
    ["requests", "cpuMillicores", 1_749],
    ["requests", "memoryMiB", 7_167],
    ["limits", "cpuMillicores", 6_999],
    ["limits", "memoryMiB", 10_751],
  ] as const)("names %s.%s if it is exhausted first", (side, quantity, hard) => {
    const tight = { ...quota, [side]: { ...quota[side], [quantity]: hard } };
    const [finding] = quotaFindings(replicas, 1, resources, tight);
    expect(finding).toContain(`must be at most 5 to fit quota.${side}.${quantity} ${hard} (`);
  });

  test("rejects a quota for too few pods", () => {
    expect(quotaFindings(replicas, 1, resources, { ...quota, pods: 6 })).toEqual([
      "autoscaler.maxReplicas must be at most 5 to fit quota.pods 6 (1 per pod, and a rolling update adds 1 pod), got 6",
    ]);
  });

  test("names each quota in which not even one pod fits, with the required value", () => {
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

  test("rejects a PDB that allows no eviction", () => {
    expect(budgetFindings({ maxUnavailable: 0 }, replicas)).toEqual([
      "budget.maxUnavailable must be at least 1, or no node can be drained, got 0",
    ]);
    expect(budgetFindings({ minAvailable: 2 }, replicas)).toEqual([
      "budget.minAvailable must be less than autoscaler.minReplicas (2), or no node can be drained, got 2",
    ]);
  });

  test("rejects a PDB that never allows the eviction of a single pod", () => {
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

  test("rejects a PDB that allows the eviction of all pods at once", () => {
    for (const maxUnavailable of [2, 6]) {
      expect(budgetFindings({ maxUnavailable }, replicas)).toEqual([
        `budget.maxUnavailable must be less than autoscaler.minReplicas (2), or all pods may be unavailable at once, got ${maxUnavailable}`,
      ]);
    }
    expect(budgetFindings({ minAvailable: 0 }, replicas)).toEqual([
      "budget.minAvailable must be at least 1, or all pods may be unavailable at once, got 0",
    ]);
  });

  test("rejects limits above the LimitRange and requests above the limits", () => {
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
  test("include the grace period, the time before the stop and a margin", () => {
    expect(stopSeconds(30)).toBe(35);
    expect(stopSeconds(30, 5)).toBe(40);
  });

  test("accepts the sum and rejects less", () => {
    expect(stopTimeFindings("stopTimeout", 35, 30)).toEqual([]);
    expect(stopTimeFindings("stopTimeout", 34, 30)).toEqual([
      "stopTimeout must be at least 35 (grace period 30 + 5), got 34",
    ]);
    expect(stopTimeFindings("terminationGracePeriodSeconds", 30, 30, 5)).toEqual([
      "terminationGracePeriodSeconds must be at least 40 (preStop 5 + grace period 30 + 5), got 30",
    ]);
  });

  test("rejects an unset time, because Docker's default is 10 seconds", () => {
    expect(stopTimeFindings("stopTimeout", undefined, 30)).toEqual([
      "stopTimeout must be at least 35 (grace period 30 + 5), got nothing",
    ]);
  });
});
