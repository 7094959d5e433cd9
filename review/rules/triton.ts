import { normalisedImage, tokenIds } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { tritonPorts } from "../../contract/ports.ts";
import { elementCount } from "../../contract/tensor.ts";
import { containerPath, tritonOnnx } from "./example-paths.ts";
import { environmentOf, releasesOf, servedSpecs } from "./facts.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import { option, serviceContainers, tritonContainers } from "./service-containers.ts";
import { at, blocks, isMissing, number, optionText, text, texts } from "./values.ts";

/** Smallest value in NVIDIA's examples. */
const minSharedMemoryMiB = 256;

/** Bytes of a number in JSON: five times the four bytes of FP32. */
const jsonBytes = 5 * 4;

/** Largest request as JSON: a full batch of one tower, in bytes. */
interface LargestRequest {
  readonly bytes: number;
  readonly content: string;
}

function largestRequest(specs: readonly ModelSpec[]): LargestRequest | undefined {
  const requests = specs.flatMap(
    ({ name, towers: { image, text: texts }, batching: { maximum } }) => {
      const of = (modality: string, dims: readonly number[]) => ({
        bytes: maximum * elementCount(dims) * jsonBytes,
        content: `${maximum} ${modality}s of ${name}`,
      });
      return [
        ...(image === undefined ? [] : [of("image", normalisedImage(image).dims)]),
        ...(texts === undefined ? [] : [of("text", tokenIds(texts).dims)]),
      ];
    },
  );
  return requests.sort((first, second) => second.bytes - first.bytes)[0];
}

/** Containers and command lines of Triton, and its gateways. */
export const tritonRules: readonly ReviewRule[] = [
  rule({
    id: "triton-shared-memory",
    severity: "warning",
    title: `Triton has at least ${minSharedMemoryMiB} MiB of shared memory.`,
    rationale:
      "Docker's default for `/dev/shm` is 64 MiB. Python models and NCCL exchange tensors there; when it is full, they fail with an unrelated error message.",
    inputs: "`shm_size` of every Triton, and `triton.sharedMemory` in the chart values.",
    fix: "set shm_size to 1024, as NVIDIA advises",
    example: {
      stack: "single-gpu",
      message: "shm_size should be at least 256 MiB, got 64",
      edits: [{ path: containerPath(tritonOnnx, "shm_size"), failing: 64, passing: 1024 }],
    },
    find: each(tritonContainers, ({ resource, values }) => {
      const size = number(values.shm_size);
      const isKnown = size !== undefined || isMissing(resource, "shm_size");
      return isKnown && (size ?? 0) < minSharedMemoryMiB
        ? `shm_size should be at least ${minSharedMemoryMiB} MiB, got ${size ?? "nothing"}`
        : undefined;
    }),
  }),
  rule({
    id: "triton-strict-start",
    severity: "error",
    title: "Triton exits with an error if a model fails to load.",
    rationale:
      "With other options, Triton completes missing configuration by guessing, starts without the model, or reports readiness too early.",
    inputs:
      "`--strict-readiness=true`, `--exit-on-error=true` and `--disable-auto-complete-config` in the command of every Triton.",
    fix: "add the option to the command",
    example: {
      stack: "single-gpu",
      message: "--exit-on-error must be true, got 'false'",
      edits: [
        {
          path: containerPath(tritonOnnx, "command", 9),
          failing: "--exit-on-error=false",
          passing: "--exit-on-error=true",
        },
      ],
    },
    find: each(tritonContainers, ({ command }) => {
      if (command.length === 0) return undefined;
      const loose = ["strict-readiness", "exit-on-error"].flatMap((name) => {
        // default of both in Triton
        const value = option(command, name) ?? "true";
        return value === true || /^(true|1|on|yes)$/i.test(value)
          ? []
          : `--${name} must be true, got '${optionText(name, value)}'`;
      });
      return option(command, "disable-auto-complete-config") === undefined
        ? [
            ...loose,
            "--disable-auto-complete-config must be set: Triton would guess missing configuration",
          ]
        : loose;
    }),
  }),
  rule({
    id: "triton-request-size",
    severity: "warning",
    title: "Triton accepts the largest batch as JSON.",
    rationale:
      "By default, Triton rejects bodies larger than 64 MiB. Thirty-two images of 224 × 224 pixels are 19 MB in binary and about five times that as JSON.",
    inputs:
      "`--http-max-input-size` of every Triton, compared with a full batch of the models that it serves.",
    fix: "set --http-max-input-size to 134217728",
    example: {
      stack: "single-gpu",
      message:
        "--http-max-input-size should be at least 96337920 bytes (32 images of openclip-vit-b32 as JSON), got 1048576",
      edits: [
        {
          path: containerPath(tritonOnnx, "command", 6),
          failing: "--http-max-input-size=1048576",
          passing: "--http-max-input-size=134217728",
        },
      ],
    },
    find: each(tritonContainers, ({ command, service }, change) => {
      const environment = environmentOf(change);
      const largest = environment && largestRequest(servedSpecs(environment, service));
      if (largest === undefined || command.length === 0) return undefined;
      // default of Triton: 64 MiB
      const maxBytes = number(option(command, "http-max-input-size")) ?? 67_108_864;
      return maxBytes >= largest.bytes
        ? undefined
        : `--http-max-input-size should be at least ${largest.bytes} bytes (${largest.content} as JSON), got ${maxBytes}`;
    }),
  }),
  rule({
    id: "gateway-upstream",
    severity: "error",
    title: "Gateways route to existing Tritons.",
    rationale:
      "A gateway runs no model itself: with a nonexistent upstream it starts but never becomes ready.",
    inputs:
      "`TRITON_GRPC_URLS` of an embed server on a host, compared with the names and gRPC port of the stack's containers and with the Triton servers on other hosts in the output `environment`; `embed.backend` in the chart values.",
    fix: "set embed.upstream to a Triton that is enabled",
    example: {
      stack: "single-gpu",
      settings: "embed: { backend: triton }",
      message:
        "TRITON_GRPC_URLS must name Tritons of the stack at port 8001, got 'single-gpu-triton:8001'",
      edits: [
        {
          path: containerPath("embed/container", "env", 8),
          failingText: "single-gpu-triton:8001",
          passingText: "single-gpu-triton-onnx:8001",
        },
      ],
    },
    *find(change) {
      const containers = serviceContainers(change);
      const names = containers.map(({ values }) => text(values.name));
      for (const { address, env, values, service } of containers) {
        const urls = env.get("TRITON_GRPC_URLS")?.split(",") ?? [];
        // on the host network or the default network, the upstream may be outside the stack
        const networks = texts(blocks(values.networks_advanced).map(({ name }) => name));
        if (values.network_mode === "host" || networks.length === 0) continue;
        for (const url of urls) {
          if (service?.upstreams?.includes(url)) continue;
          const [host, port] = url.split(":");
          if (names.includes(host) && Number(port) === tritonPorts.grpc) continue;
          yield {
            address,
            message: `TRITON_GRPC_URLS must name Tritons of the stack at port ${tritonPorts.grpc}, got '${url}'`,
          };
        }
      }
      for (const { resource, values } of releasesOf(change)) {
        const isGateway = at(values, "embed", "backend") === "triton";
        if (!isGateway || at(values, "triton", "enabled") === true) continue;
        yield {
          address: resource.address,
          message: "triton.enabled must be true when embed.backend is triton, got false",
        };
      }
    },
  }),
];
