import type { Environment } from "../contract/environment.ts";
import { defaultModels } from "../contract/models/index.ts";
import { hostPorts, kindPorts, tritonPorts } from "../contract/ports.ts";

/** Terraform JSON for tests, in the shape of the provider bindings. */
export interface TestDocument {
  resource: Record<string, Record<string, Record<string, unknown>>>;
  output: { environment: { value: Environment } };
}

export interface TestPorts {
  readonly embed: number;
  readonly triton: { readonly http: number; readonly grpc: number; readonly metrics: number };
}

export interface TestOptions {
  readonly ports?: TestPorts;
  /** Terraform expression of the model repository. */
  readonly repository?: string;
  /** Model repository of the Triton server, if it differs. */
  readonly tritonRepository?: string;
  /** @default - `config.pbtxt` of the repository */
  readonly modelConfigName?: string;
}

/** `two-services`: an embed server and a Triton server with ONNX Runtime. */
export function dockerDocument(options: TestOptions = {}): TestDocument {
  const ports = options.ports ?? { embed: hostPorts.embed, triton: hostPorts.tritonOnnx };
  const repository = options.repository ?? `\${path.root}/../model_repository`;
  const mount = (root: string) => ({
    host_path: `\${abspath("${root}/openclip_vit_b32")}`,
    container_path: "/models/openclip_vit_b32",
    read_only: true,
  });
  return {
    resource: {
      docker_network: { network: { name: "clipstack" } },
      docker_container: {
        embed: {
          name: "two-services-embed",
          env: ["BACKEND=onnxruntime", "PORT=8002", "SHUTDOWN_GRACE_SECONDS=20"],
          ports: [{ internal: 8002, external: ports.embed, ip: "127.0.0.1" }],
          volumes: [mount(repository)],
          healthcheck: {
            test: ["CMD", "node", "-e", 'fetch("http://127.0.0.1:8002/readyz").then(() => {})'],
            interval: "5s",
            start_period: "1m0s",
            retries: 6,
          },
          networks_advanced: [{ name: `\${docker_network.network.name}` }],
          destroy_grace_seconds: 25,
        },
        triton: {
          name: "two-services-triton-onnx",
          command: [
            "tritonserver",
            "--model-repository=/models",
            ...(options.modelConfigName === undefined
              ? []
              : [`--model-config-name=${options.modelConfigName}`]),
            "--exit-timeout-secs=20",
          ],
          ports: [
            { internal: tritonPorts.http, external: ports.triton.http },
            { internal: tritonPorts.grpc, external: ports.triton.grpc },
            { internal: tritonPorts.metrics, external: ports.triton.metrics },
          ],
          volumes: [mount(options.tritonRepository ?? repository)],
          healthcheck: {
            test: ["CMD", "curl", "-fsS", `http://localhost:${tritonPorts.http}/v2/health/ready`],
            interval: "5s",
            retries: 24,
          },
          networks_advanced: [{ name: `\${docker_network.network.name}` }],
          destroy_grace_seconds: 25,
        },
      },
    },
    output: {
      environment: {
        value: {
          schema: 4,
          name: "two-services",
          where: "unix:///var/run/docker.sock",
          accelerator: "cpu",
          models: [...defaultModels],
          services: [
            {
              name: "embed",
              kind: "embed",
              backend: "onnxruntime",
              models: defaultModels.map(({ name }) => name),
              modelKind: "fp32",
              resources: { container: "docker_container.embed" },
              endpoints: [
                {
                  protocol: "embed-http",
                  url: `http://127.0.0.1:${ports.embed}`,
                  name: "embed-http",
                },
                { protocol: "metrics", url: `http://127.0.0.1:${ports.embed}` },
              ],
            },
            {
              name: "triton-onnx",
              kind: "triton",
              backend: "onnxruntime",
              models: defaultModels.map(({ name }) => name),
              modelKind: "fp32",
              resources: { container: "docker_container.triton" },
              endpoints: [
                {
                  protocol: "oip-http",
                  url: `http://127.0.0.1:${ports.triton.http}`,
                  name: "onnx-http",
                },
                {
                  protocol: "oip-grpc",
                  url: `127.0.0.1:${ports.triton.grpc}`,
                  name: "onnx-grpc",
                },
                { protocol: "metrics", url: `http://127.0.0.1:${ports.triton.metrics}` },
              ],
            },
          ],
        },
      },
    },
  };
}

/**
 * {@link dockerDocument} with weights and model configuration on named volumes that containers fill.
 *
 * @param text - Model configuration.
 */
export function volumesDocument(text: string, options: TestOptions = {}): TestDocument {
  const document = dockerDocument({ modelConfigName: "deployed", ...options });
  const { docker_container: containers = {} } = document.resource;
  const oneShot = { must_run: false, attach: true, logs: true };
  const [weights, config] = [`\${docker_volume.weights.name}`, `\${docker_volume.config.name}`];
  const folder = options.repository ?? `\${path.root}/../model_repository`;
  document.resource.docker_volume = {
    weights: { name: `two-services-weights-\${substr(local.sha256, 0, 12)}` },
    config: { name: "two-services-triton-onnx-config" },
  };
  containers.weights = {
    ...oneShot,
    name: "two-services-weights",
    command: ["check-weights", "--folder", "/weights", "--sha256", `\${local.sha256}`],
    volumes: [{ container_path: "/weights", volume_name: weights }],
    upload: [
      { file: "/weights/model.onnx", source: `${folder}/openclip_vit_b32/1/model.onnx` },
      { file: "/weights/model.onnx.json", content: `\${try(file("${folder}/x.json"), "{}")}` },
    ],
  };
  containers.config = {
    ...oneShot,
    name: "two-services-triton-onnx-config",
    command: [
      "apply-config",
      ...["--folder", "/configs", "--file", "/config.pbtxt", "--name", "deployed"],
      ...["--model", "openclip_vit_b32", "--server", "http://two-services-triton-onnx:8000"],
    ],
    volumes: [{ container_path: "/configs", volume_name: config }],
    upload: [{ file: "/config.pbtxt", content: text }],
  };
  const at = "/models/openclip_vit_b32";
  const version = { container_path: `${at}/1`, volume_name: weights, read_only: true };
  Object.assign(containers.embed ?? {}, { volumes: [version] });
  Object.assign(containers.triton ?? {}, {
    volumes: [version, { container_path: `${at}/configs`, volume_name: config, read_only: true }],
  });
  return document;
}

/** `cluster`: a Deployment with two replicas behind kind's port mapping. */
export function kubernetesDocument(
  hostPort: number = kindPorts.host,
  livenessPath = "/healthz",
): TestDocument {
  const labels = { "app.kubernetes.io/component": "embed" };
  const { nodePort } = kindPorts;
  return {
    resource: {
      terraform_data: {
        cluster: {
          input: {
            config: `nodes:\n- role: control-plane\n  extraPortMappings:\n  - containerPort: ${nodePort}\n    hostPort: ${hostPort}\n    listenAddress: 127.0.0.1\n`,
          },
        },
      },
      kubernetes_deployment_v1: {
        embed: {
          metadata: { name: "embed" },
          spec: {
            template: {
              metadata: { labels },
              spec: {
                container: [
                  {
                    name: "embed",
                    env: [
                      { name: "PORT", value: "8002" },
                      { name: "INTRA_OP_THREADS", value: "1" },
                    ],
                    port: [{ container_port: 8002, name: "http" }],
                    readiness_probe: {
                      http_get: { path: "/readyz", port: "http" },
                      period_seconds: 5,
                      failure_threshold: 2,
                    },
                    liveness_probe: {
                      http_get: { path: livenessPath, port: "http" },
                    },
                  },
                ],
                termination_grace_period_seconds: 40,
              },
            },
          },
        },
      },
      kubernetes_horizontal_pod_autoscaler_v2: {
        embed: {
          spec: {
            min_replicas: 2,
            max_replicas: 6,
            scale_target_ref: {
              kind: "Deployment",
              name: `\${kubernetes_deployment_v1.embed.metadata[0].name}`,
            },
          },
        },
      },
      kubernetes_service_v1: {
        embed: {
          spec: {
            type: "NodePort",
            selector: labels,
            port: [{ port: 8002, target_port: "http", node_port: nodePort }],
          },
        },
      },
    },
    output: {
      environment: {
        value: {
          schema: 4,
          name: "cluster",
          where: "kind-clipstack",
          accelerator: "cpu",
          models: [...defaultModels],
          services: [
            {
              name: "embed",
              kind: "embed",
              backend: "onnxruntime",
              models: defaultModels.map(({ name }) => name),
              modelKind: "fp32",
              resources: {
                deployment: "kubernetes_deployment_v1.embed",
                service: "kubernetes_service_v1.embed",
                cluster: "terraform_data.cluster",
              },
              endpoints: [
                {
                  protocol: "embed-http",
                  url: `http://127.0.0.1:${hostPort}`,
                  name: "embed-http",
                },
                { protocol: "metrics", url: `http://127.0.0.1:${hostPort}` },
              ],
            },
          ],
        },
      },
    },
  };
}

export interface TestEmbed {
  readonly name: string;
  readonly port: number;
  readonly env?: readonly string[];
  /** Folder of a model repository. */
  readonly repository?: string;
  readonly healthPath?: string;
  readonly graceSeconds?: number;
  /** Published port, if it differs from the environment's. */
  readonly published?: number;
}

/** Embed servers, one container each. */
export function embedsDocument(name: string, embeds: readonly TestEmbed[]): TestDocument {
  return {
    resource: {
      docker_container: Object.fromEntries(
        embeds.map((embed) => [
          embed.name,
          {
            name: `${name}-${embed.name}`,
            env: ["PORT=8002", "SHUTDOWN_GRACE_SECONDS=5", ...(embed.env ?? [])],
            ports: [{ internal: 8002, external: embed.published ?? embed.port }],
            volumes:
              embed.repository === undefined
                ? []
                : [{ container_path: "/models", host_path: embed.repository }],
            healthcheck: {
              test: ["CMD", "curl", "-f", `http://localhost:8002${embed.healthPath ?? "/readyz"}`],
            },
            destroy_grace_seconds: embed.graceSeconds ?? 8,
          },
        ]),
      ),
    },
    output: {
      environment: {
        value: {
          schema: 4,
          name,
          where: "unix:///var/run/docker.sock",
          accelerator: "cpu",
          models: [...defaultModels],
          services: embeds.map((embed) => ({
            name: embed.name,
            kind: "embed",
            backend: "onnxruntime",
            models: defaultModels.map(({ name }) => name),
            modelKind: "fp32",
            resources: { container: `docker_container.${embed.name}` },
            endpoints: [
              {
                protocol: "embed-http",
                url: `http://127.0.0.1:${embed.port}`,
                name: "embed-http",
              },
            ],
          })),
        },
      },
    },
  };
}
