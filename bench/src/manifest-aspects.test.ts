import { expect, test } from "vitest";
import { differences } from "./container-aspects.ts";
import { manifestAspects } from "./manifest-aspects.ts";
import { kubectlDeployment } from "./test-kubectl.ts";

/** What is declared of the Deployment of `test-kubectl.ts`; a change of it is `found` or `declared`. */
const declared = {
  apiVersion: "apps/v1",
  kind: "Deployment",
  metadata: { name: "clipstack-embed", labels: { "app.kubernetes.io/name": "clipstack" } },
  spec: {
    template: {
      spec: {
        automountServiceAccountToken: false,
        containers: [
          {
            name: "embed",
            image: "clipstack/embed:k8s-cpu",
            resources: { limits: { cpu: "1000m" }, requests: { memory: "1Gi" } },
            env: kubectlDeployment.spec.template.spec.containers[0]?.env,
            ports: [{ name: "http", containerPort: 8002 }],
            volumeMounts: [{ name: "tmp", mountPath: "/tmp" }],
            securityContext: {
              allowPrivilegeEscalation: false,
              readOnlyRootFilesystem: true,
              capabilities: { drop: ["ALL"] },
            },
          },
        ],
        volumes: [{ name: "tmp", emptyDir: { medium: "Memory", sizeLimit: "64Mi" } }],
      },
    },
  },
};

type Pod = Record<string, unknown> & { containers: Record<string, unknown>[] };

/** What differs when somebody has changed the pod template in the cluster. */
function changed(change: (pod: Pod) => void) {
  const found = structuredClone(kubectlDeployment);
  change(found.spec.template.spec as unknown as Pod);
  return differences(manifestAspects(declared, found)).map(
    ({ name, declared: must, found: is }) => `${name} must be ${must}, is ${is}`,
  );
}

function container(pod: Pod): Record<string, unknown> {
  const [first] = pod.containers;
  if (first === undefined) throw new Error("the pod has no container");
  return first;
}

test("what the API server adds and writes in other words is no difference", () => {
  expect(changed(() => {})).toEqual([]);
  expect(manifestAspects(declared, kubectlDeployment).length).toBeGreaterThan(20);
});

test.each<[string, (pod: Pod) => void, string]>([
  [
    "another image",
    (pod) => {
      container(pod).image = "clipstack/embed:old";
    },
    "containers.embed.image must be clipstack/embed:k8s-cpu, is clipstack/embed:old",
  ],
  [
    "another limit",
    (pod) => {
      container(pod).resources = { limits: { cpu: "2" }, requests: { memory: "1Gi" } };
    },
    "containers.embed.resources.limits.cpu must be 1000m, is 2",
  ],
  [
    "a writable root",
    (pod) => {
      container(pod).securityContext = {
        allowPrivilegeEscalation: false,
        capabilities: { drop: ["ALL"] },
      };
    },
    "containers.embed.securityContext.readOnlyRootFilesystem must be true, is not set",
  ],
  [
    "an added capability",
    (pod) => {
      container(pod).securityContext = {
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"], add: ["NET_ADMIN"] },
      };
    },
    "containers.embed.securityContext.capabilities.add must be not set, is NET_ADMIN",
  ],
  [
    "another container",
    (pod) => void pod.containers.push({ name: "sidecar", image: "busybox" }),
    "containers.sidecar must be not there, is there",
  ],
  [
    "the host's network",
    (pod) => {
      pod.hostNetwork = true;
    },
    "hostNetwork must be not set, is true",
  ],
  [
    "a folder of the host",
    (pod) => {
      pod.volumes = [
        { name: "tmp", emptyDir: { medium: "Memory", sizeLimit: "64Mi" } },
        { name: "root", hostPath: { path: "/" } },
      ];
    },
    "volumes.root must be not there, is there",
  ],
  [
    "a token that nobody asked for",
    (pod) => {
      delete pod.automountServiceAccountToken;
    },
    "automountServiceAccountToken must be false, is not set",
  ],
])("finds %s", (_name, change, message) => {
  expect(changed(change)).toEqual([message]);
});

test("the value of a variable that somebody has changed is not shown", () => {
  const [name] = (container({
    containers: kubectlDeployment.spec.template.spec.containers,
  } as unknown as Pod).env ?? []) as { name: string; value: string }[];
  expect(
    changed((pod) => {
      const env = structuredClone(container(pod).env) as { value: string }[];
      if (env[0] !== undefined) env[0].value = "a secret";
      container(pod).env = env;
    }),
  ).toEqual([`containers.embed.env.${name?.name}.value must be ${name?.value}, is another value`]);
});

test("a port of TCP and the same of UDP are two", () => {
  const ports = [
    { port: 53, protocol: "UDP" },
    { port: 53, protocol: "TCP" },
  ];
  const policy = (items: readonly object[]) => ({ spec: { egress: [{ ports: items }] } });
  expect(differences(manifestAspects(policy(ports), policy([...ports].reverse())))).toEqual([]);
  expect(differences(manifestAspects(policy(ports), policy(ports.slice(1))))).toEqual([
    { name: "egress.0.ports.53/UDP", declared: "there", found: "not there" },
  ]);
});

test("an object that is not there has none of what is declared", () => {
  expect(differences(manifestAspects({ spec: { minAvailable: 1 } }, undefined))).toEqual([
    { name: "minAvailable", declared: "1", found: "not set" },
  ]);
});
