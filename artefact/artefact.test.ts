import { expect, test } from "vitest";
import { parseArtefact, readArtefact } from "./artefact.ts";
import { kindPortMappings } from "./service-ports.ts";
import { dockerDocument, kubernetesDocument, type TestDocument } from "./test-artefact.ts";

const parse = (document: unknown) => parseArtefact(JSON.stringify(document), "cdk.tf.json");

function parseInvalid(change: (document: TestDocument) => void, document = dockerDocument()) {
  change(document);
  return () => parse(document);
}

function messageOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    return (error as Error).message;
  }
  return "nothing was thrown";
}

function workload(document: TestDocument, service: string) {
  const found = parse(document).workloads.find((it) => it.service.name === service);
  if (found === undefined) throw new Error(`no workload of ${service}`);
  return found;
}

test("reads the command, environment, ports and volumes of a container", () => {
  const triton = workload(dockerDocument(), "triton-onnx");
  expect(triton).toMatchObject({
    address: "docker_container.triton",
    kind: "container",
    name: "two-services-triton-onnx",
    command: ["tritonserver", "--model-repository=/models", "--exit-timeout-secs=20"],
    published: [
      { internal: 8000, external: 8010 },
      { internal: 8001, external: 8011 },
      { internal: 8002, external: 8012 },
    ],
    replicas: 1,
    graceSeconds: 25,
  });
  expect(workload(dockerDocument(), "embed").env).toEqual({
    BACKEND: "onnxruntime",
    PORT: "8002",
    SHUTDOWN_GRACE_SECONDS: "20",
  });
});

test("an environment value may contain an equals sign", () => {
  const document = dockerDocument();
  document.resource.docker_container!.embed!.env = ["A=b=c"];
  expect(workload(document, "embed").env).toEqual({ A: "b=c" });
});

test("reads the URL of a health check with curl and with node", () => {
  const urls = ["embed", "triton-onnx"].map((it) => workload(dockerDocument(), it).probes[0]?.http);
  expect(urls).toEqual([
    { port: 8002, path: "/readyz" },
    { port: 8000, path: "/v2/health/ready" },
  ]);
});

test("the start limit of a health check is its start period plus its retries", () => {
  expect(workload(dockerDocument(), "embed").probes[0]?.budgetSeconds).toBe(60 + 5 * 7);
});

test("a reference to another resource's name is resolved", () => {
  expect(workload(dockerDocument(), "embed").networks).toEqual(["clipstack"]);
});

test("a block may be written as a list", () => {
  const document = dockerDocument();
  const embed = document.resource.docker_container!.embed!;
  embed.healthcheck = [embed.healthcheck];
  expect(workload(document, "embed").probes).toHaveLength(1);
});

test("a Deployment has the replicas of its autoscaler's minimum", () => {
  expect(workload(kubernetesDocument(), "embed").replicas).toBe(2);
});

test("a Deployment's own number of replicas takes precedence over the autoscaler's", () => {
  const document = kubernetesDocument();
  (document.resource.kubernetes_deployment_v1!.embed!.spec as { replicas?: number }).replicas = 3;
  expect(workload(document, "embed").replicas).toBe(3);
});

test("a Deployment that KEDA scales has the replicas of its minimum", () => {
  const document = kubernetesDocument();
  const { kubernetes_horizontal_pod_autoscaler_v2: _, ...resource } = document.resource;
  const scaledObject = {
    apiVersion: "keda.sh/v1alpha1",
    kind: "ScaledObject",
    metadata: { name: "embed" },
    spec: { minReplicaCount: 3, scaleTargetRef: { name: "embed" } },
  };
  document.resource = { ...resource, kubernetes_manifest: { it: { manifest: scaledObject } } };
  expect(workload(document, "embed").replicas).toBe(3);
});

test("a variable of a Deployment from a Secret passes the rules of an API key", () => {
  const document = kubernetesDocument();
  const { spec } = document.resource.kubernetes_deployment_v1!.embed! as {
    spec: { template: { spec: { container: { env: object[] }[] } } };
  };
  const secret = { secret_key_ref: { name: "keys", key: "api-key" } };
  spec.template.spec.container[0]!.env.push({ name: "API_KEY", value_from: secret });
  expect(workload(document, "embed").env.API_KEY).toBe(
    '{"secretKeyRef":{"name":"keys","key":"api-key"}}',
  );
});

test("a Deployment is published through target port, node port and kind's mapping", () => {
  expect(workload(kubernetesDocument(), "embed")).toMatchObject({
    kind: "deployment",
    name: "embed",
    published: [{ internal: 8002, external: 8092 }],
    graceSeconds: 40,
    faults: [],
  });
});

test("an unmapped node port is a fault of the Deployment", () => {
  const document = kubernetesDocument();
  document.resource.terraform_data!.cluster!.input = {};
  expect(workload(document, "embed").faults).toEqual([
    "kubernetes_service_v1.embed has node port 30092, which terraform_data.cluster maps to no port",
  ]);
});

test("a selector without matching pods is a fault of the Deployment", () => {
  const document = kubernetesDocument();
  (document.resource.kubernetes_service_v1!.embed!.spec as { selector: object }).selector = {
    app: "other",
  };
  expect(workload(document, "embed").faults).toEqual([
    "kubernetes_service_v1.embed selects app=other, which does not match its pods",
  ]);
});

test("an unknown target port is a fault of the Deployment", () => {
  const document = kubernetesDocument();
  const spec = document.resource.kubernetes_service_v1!.embed!.spec as { port: object[] };
  spec.port = [{ port: 80, target_port: "web", node_port: 30_092 }];
  expect(workload(document, "embed").faults).toEqual([
    "kubernetes_service_v1.embed targets port 'web', but the container declares no port with this name",
  ]);
});

test("lists a container without a service", () => {
  const document = dockerDocument();
  document.resource.docker_container!.owner = { name: "owner", command: ["1000:1000"] };
  expect(parse(document).otherContainers).toEqual(["docker_container.owner"]);
});

test("reads kind's port mappings from YAML, JSON and objects", () => {
  const yaml = "extraPortMappings:\n  - containerPort: 30092\n    hostPort: 8092\n";
  const json = '{"hostPort":8093,"listenAddress":"127.0.0.1","containerPort":30093}';
  const object = { nodes: [{ extraPortMappings: [{ containerPort: 30094, hostPort: 8094 }] }] };
  expect([...kindPortMappings([yaml, json, object])]).toEqual([
    [30092, 8092],
    [30093, 8093],
    [30094, 8094],
  ]);
});

test("fails on a missing file", () => {
  expect(() => readArtefact("/no/such/cdk.tf.json", "cdk.tf.json")).toThrow(
    "cdk.tf.json: no such file",
  );
});

test("fails on text that is not JSON", () => {
  expect(() => parseArtefact("{", "cdk.tf.json")).toThrow("cdk.tf.json: must be JSON");
});

test("fails when the output is missing", () => {
  expect(() => parse({ resource: {} })).toThrow("cdk.tf.json: output.environment is missing");
});

const malformed: readonly (readonly [string, (document: TestDocument) => void, string])[] = [
  [
    "an output of another schema",
    (it) => Object.assign(it.output.environment.value, { schema: 5 }),
    "cdk.tf.json: output.environment.value: schema must be one of 4, got 5",
  ],
  [
    "an unknown endpoint name",
    (it) =>
      Object.assign(it.output.environment.value.services[0]!.endpoints[0]!, { name: "embed" }),
    "cdk.tf.json: output.environment.value: services.0.endpoints.0.name must be one of embed-http, onnx-http, onnx-grpc, trt-http, trt-grpc, pytorch-http, got 'embed' (did you mean 'embed-http'?)",
  ],
  [
    "a service without a workload",
    (it) => Object.assign(it.output.environment.value.services[0]!, { resources: {} }),
    "cdk.tf.json: service 'embed' must name one container, one Deployment or one release in resources, got {}",
  ],
  [
    "a missing container",
    (it) => {
      delete it.resource.docker_container!.embed;
    },
    "cdk.tf.json: service 'embed' references docker_container.embed, which is not in the file",
  ],
  [
    "a container without a name",
    (it) => {
      delete it.resource.docker_container!.embed!.name;
    },
    "cdk.tf.json: docker_container.embed: name is required",
  ],
  [
    "an environment line without a value",
    (it) => Object.assign(it.resource.docker_container!.embed!, { env: ["PORT"] }),
    "cdk.tf.json: docker_container.embed: env.0 must be NAME=value, got 'PORT'",
  ],
  [
    "a port out of range",
    (it) =>
      Object.assign(it.resource.docker_container!.embed!, {
        ports: [{ internal: 70_000, external: 1 }],
      }),
    "cdk.tf.json: docker_container.embed: ports.0.internal must be at most 65535, got 70000",
  ],
  [
    "a command that is not a list",
    (it) => Object.assign(it.resource.docker_container!.triton!, { command: "tritonserver" }),
    "cdk.tf.json: docker_container.triton: command must be a list, got 'tritonserver'",
  ],
];
test.each(malformed)("fails on %s", (_name, change, message) => {
  expect(messageOf(parseInvalid(change))).toBe(message);
});

test("fails on a pod with two containers", () => {
  const document = kubernetesDocument();
  const spec = document.resource.kubernetes_deployment_v1!.embed!.spec as {
    template: { spec: { container: { name: string }[] } };
  };
  spec.template.spec.container.push({ name: "sidecar" });
  expect(() => parse(document)).toThrow(
    "cdk.tf.json: kubernetes_deployment_v1.embed: must have one container, got embed, sidecar",
  );
});
