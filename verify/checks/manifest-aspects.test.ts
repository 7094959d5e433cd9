import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { setFields } from "../test-containers.ts";
import { kubectlDeployment } from "../test-kubectl.ts";
import { differences } from "./aspect.ts";
import { manifestAspects } from "./manifest-aspects.ts";

/** Declaration of the Deployment in `test-kubectl.ts`; tests change either `found` or `declared`. */
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

/** Differences after a change of the pod template in the cluster. */
function changed(change: (pod: Pod) => void) {
  const found = structuredClone(kubectlDeployment);
  change(found.spec.template.spec as unknown as Pod);
  return sentences(declared, found);
}

function sentences(must: object, is: object): readonly string[] {
  return differences(manifestAspects(must, is)).map(
    (it) => `${it.name} must be ${it.declared}, got ${it.found}`,
  );
}

function container(pod: Pod): Record<string, unknown> {
  const [first] = pod.containers;
  if (first === undefined) throw new Error("the pod has no container");
  return first;
}

test("defaults and normalised values of the API server are no differences", () => {
  expect(changed(() => {})).toEqual([]);
  expect(manifestAspects(declared, kubectlDeployment).length).toBeGreaterThan(20);
});

interface Case {
  readonly finds: string;
  /** Fields of the pod by path; `null` removes a field. */
  readonly set: Readonly<Record<string, unknown>>;
  readonly message: string;
}
const cases: Readonly<Record<"declared" | "undeclared", readonly Case[]>> = parse(
  readFileSync("verify/checks/manifest-aspects.cases.yaml", "utf8"),
);

function setAll(pod: object, set: Case["set"]): void {
  setFields(
    pod,
    Object.fromEntries(Object.entries(set).map(([path, value]) => [path, value ?? undefined])),
  );
}

test.each(cases.declared)("finds $finds", ({ set, message }) => {
  expect(changed((pod) => setAll(pod, set))).toEqual([message]);
});

test.each(cases.undeclared)(
  "finds $finds where no list of them is declared",
  ({ set, message }) => {
    const template = (pod: object) => ({ kind: "Deployment", spec: { template: { spec: pod } } });
    const bare = { containers: [{ name: "embed", image: "clipstack/embed:k8s-cpu" }] };
    const found = structuredClone(bare);
    setAll(found, set);
    expect(sentences(template(bare), template(found))).toEqual([message]);
    const written = { ...bare, initContainers: null, volumes: [], containers: bare.containers };
    expect(sentences(template(written), template(found))).toEqual([message]);
  },
);

test("the token and the tolerations that the API server adds to a pod are no differences", () => {
  const pod = (spec: object) => ({ kind: "Pod", spec });
  const container = { name: "curl", image: "curl" };
  const token = { name: "kube-api-access-cxdb4" };
  const found = {
    containers: [
      {
        ...container,
        volumeMounts: [{ ...token, mountPath: "/var/run/secrets/kubernetes.io/serviceaccount" }],
      },
    ],
    tolerations: [{ key: "node.kubernetes.io/not-ready", operator: "Exists" }],
    volumes: [{ ...token, projected: {} }],
  };
  expect(sentences(pod({ containers: [container] }), pod(found))).toEqual([]);
});

const policy = {
  kind: "NetworkPolicy",
  spec: {
    podSelector: {},
    ingress: [
      { from: [{ podSelector: { matchLabels: { app: "a" } } }], ports: [{ port: "http" }] },
    ],
    policyTypes: ["Ingress", "Egress"],
  },
};
const [rule] = policy.spec.ingress;

test.each(
  Object.entries<object>({
    "egress.0 must be absent, got present": { egress: [{}] },
    "ingress.0.from.1 must be absent, got present": {
      ingress: [{ ...rule, from: [...(rule?.from ?? []), { ipBlock: { cidr: "0.0.0.0/0" } }] }],
    },
    "ingress.0.from.0.namespaceSelector must be not set, got {}": {
      ingress: [{ ...rule, from: [{ ...rule?.from[0], namespaceSelector: {} }] }],
    },
    "ingress.0.from.0 must be present, got missing": { ingress: [{ ports: rule?.ports }] },
    'podSelector.matchLabels must be not set, got {"app":"b"}': {
      podSelector: { matchLabels: { app: "b" } },
    },
  }),
)("finds %s in a network policy that does not declare it", (message, change) => {
  expect(sentences(policy, { ...policy, spec: { ...policy.spec, ...change } })).toEqual([message]);
});

test("fields that the API server adds to a network policy are no differences", () => {
  const { policyTypes: _types, ...spec } = policy.spec;
  const found = {
    kind: "NetworkPolicy",
    metadata: { annotations: { "kubectl.kubernetes.io/last-applied-configuration": "{}" } },
    spec: {
      ...spec,
      ingress: [{ ...rule, ports: [{ port: "http", protocol: "TCP" }] }],
      policyTypes: ["Ingress"],
    },
  };
  const declared = { kind: "NetworkPolicy", metadata: { annotations: {} }, spec };
  expect(sentences(declared, found)).toEqual([]);
  const open = { ...found, spec: { ...found.spec, policyTypes: ["Egress"] } };
  expect(sentences(declared, open)).toEqual(["policyTypes must be Ingress, got Egress"]);
});

test("the value of a changed variable is not printed", () => {
  const [name] = (container({
    containers: kubectlDeployment.spec.template.spec.containers,
  } as unknown as Pod).env ?? []) as { name: string; value: string }[];
  expect(
    changed((pod) => {
      const env = structuredClone(container(pod).env) as { value: string }[];
      if (env[0] !== undefined) env[0].value = "a secret";
      container(pod).env = env;
    }),
  ).toEqual([`containers.embed.env.${name?.name}.value must be ${name?.value}, got another value`]);
});

test("the same port of TCP and UDP are different ports", () => {
  const ports = [
    { port: 53, protocol: "UDP" },
    { port: 53, protocol: "TCP" },
  ];
  const policy = (items: readonly object[]) => ({ spec: { egress: [{ ports: items }] } });
  expect(differences(manifestAspects(policy(ports), policy([...ports].reverse())))).toEqual([]);
  expect(differences(manifestAspects(policy(ports), policy(ports.slice(1))))).toEqual([
    { name: "egress.0.ports.53/UDP", declared: "present", found: "missing" },
  ]);
});

test("a missing object differs in every declared aspect", () => {
  expect(differences(manifestAspects({ spec: { minAvailable: 1 } }, undefined))).toEqual([
    { name: "minAvailable", declared: "1", found: "not set" },
  ]);
});
