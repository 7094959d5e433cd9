import { normalisedImage, tokenIds } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { tritonPorts } from "../../contract/ports.ts";
import { elementCount } from "../../contract/tensor.ts";
import { option, serviceContainers, tritonContainers } from "../facts/service-containers.ts";
import { at, blocks, isMissing, number, optionText, text, texts } from "../facts/values.ts";
import { environmentOf, releasesOf, servedSpecs } from "../facts/workloads.ts";
import { each, type ReviewRule, rule } from "./rule.ts";

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
    fix: "set shm_size to 1024, as NVIDIA advises",
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
    fix: "add the option to the command",
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
    fix: "set --http-max-input-size to 134217728",
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
    fix: "set embed.upstream to a Triton server that is enabled",
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
            message: `TRITON_GRPC_URLS must name Triton servers of the stack at port ${tritonPorts.grpc}, got '${url}'`,
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
