import { expect, test } from "vitest";
import { plannedChange } from "../test-plans.ts";
import { plainTextMatches } from "./plain-text.ts";

type Resource = Parameters<typeof plannedChange>[0][number];

const created = (address: string, after: object): Resource => ({
  address,
  actions: ["create"],
  after,
});
const labels = { "app.kubernetes.io/name": "clipstack", "app.kubernetes.io/component": "embed" };
const found = (...resources: readonly Resource[]) =>
  [...plainTextMatches(plannedChange(resources))].map(
    ({ address, message }) => `${address}: ${message}`,
  );

const service = (spec: object, annotations = {}) =>
  created("kubernetes_service_v1.embed", {
    metadata: [{ name: "public", annotations }],
    spec: [{ selector: labels, ...spec }],
  });
const pods = (env: readonly object[]) =>
  created("kubernetes_deployment_v1.embed", {
    metadata: [{ name: "embed" }],
    spec: [{ template: [{ metadata: [{ labels }], spec: [{ container: [{ env }] }] }] }],
  });
const manifest = (kind: string, spec: object, annotations = {}) =>
  created(`kubernetes_manifest.${kind}`, {
    manifest: { kind, metadata: { name: "public", annotations }, spec },
  });
const release = (values: string, set: readonly object[] = []) =>
  created("helm_release.clip", { chart: "./helm/clipstack", values: [values], set });
const inClearText = "requests and keys are sent in clear text";
const openService = `must have TLS, or a Service of the type ClusterIP: ${inClearText}`;
const allowed = { "clipstack.allow-plaintext": "true" };
const tls = [{ name: "TLS_CERT_FILE", value: "/etc/clipstack/tls/tls.crt" }];

test.each<readonly [string, readonly Resource[], readonly string[]]>([
  ["a Service inside the cluster", [service({ type: "ClusterIP" })], []],
  [
    "a load balancer",
    [service({ type: "LoadBalancer" }), pods([])],
    [`kubernetes_service_v1.embed: ${openService}`],
  ],
  [
    "an internal load balancer",
    [service({ type: "LoadBalancer" }, { "networking.gke.io/load-balancer-type": "Internal" })],
    [`kubernetes_service_v1.embed: ${openService}`],
  ],
  [
    "external addresses",
    [service({ type: "ClusterIP", external_ips: ["203.0.113.7"] })],
    [`kubernetes_service_v1.embed: ${openService}`],
  ],
  ["a load balancer that is permitted", [service({ type: "LoadBalancer" }, allowed)], []],
  ["a load balancer of pods with TLS", [service({ type: "LoadBalancer" }), pods(tls)], []],
  [
    "a load balancer of other pods",
    [service({ type: "LoadBalancer", selector: { app: "web" } }), pods([])],
    [],
  ],
  [
    "a Service as a manifest",
    [manifest("Service", { type: "NodePort", selector: labels })],
    [`kubernetes_manifest.Service: ${openService}`],
  ],
  [
    "a load balancer of a release with TLS",
    [service({ type: "LoadBalancer" }), release("embed: { tls: { secretName: cert } }")],
    [],
  ],
])("judges %s", (_, resources, expected) => {
  expect(found(...resources)).toEqual(expected);
});

const backend = { service: { name: "clipstack-embed", port: { name: "http" } } };
const rules = [{ http: { paths: [{ path: "/", backend }] } }];
const route = { rules: [{ backendRefs: [{ name: "clipstack-embed", port: 8002 }] }] };
const gateway = manifest("Gateway", {
  listeners: [
    { name: "http", protocol: "HTTP", port: 80 },
    { name: "https", protocol: "HTTPS", port: 443 },
  ],
});
const onListener = (sectionName?: string) => [{ name: "public", sectionName }];
const plainIngress = `must have tls: ${inClearText}`;
const plainRoute = `parentRefs must each have the sectionName of a listener with TLS: ${inClearText}`;

test.each<readonly [string, readonly Resource[], readonly string[]]>([
  [
    "an Ingress",
    [
      created("kubernetes_ingress_v1.a", {
        metadata: [{ name: "a" }],
        spec: [{ rule: [{ http: [{ path: [{ backend: [{ service: [backend.service] }] }] }] }] }],
      }),
    ],
    [`kubernetes_ingress_v1.a: ${plainIngress}`],
  ],
  [
    "an Ingress as a manifest",
    [manifest("Ingress", { rules })],
    [`kubernetes_manifest.Ingress: ${plainIngress}`],
  ],
  ["an Ingress with TLS", [manifest("Ingress", { rules, tls: [{ secretName: "cert" }] })], []],
  ["an Ingress that is permitted", [manifest("Ingress", { rules }, allowed)], []],
  [
    "an Ingress of another Service",
    [manifest("Ingress", { defaultBackend: { service: { name: "web" } } })],
    [],
  ],
  [
    "a route to all listeners of an unknown Gateway",
    [manifest("HTTPRoute", { parentRefs: onListener(), ...route })],
    [`kubernetes_manifest.HTTPRoute: ${plainRoute}`],
  ],
  [
    "a route to a listener of an unknown Gateway",
    [manifest("HTTPRoute", { parentRefs: onListener("https"), ...route })],
    [],
  ],
  [
    "a route to a listener without TLS",
    [gateway, manifest("GRPCRoute", { parentRefs: onListener("http"), ...route })],
    [`kubernetes_manifest.GRPCRoute: ${plainRoute}`],
  ],
  [
    "a route to a listener with TLS",
    [gateway, manifest("HTTPRoute", { parentRefs: onListener("https"), ...route })],
    [],
  ],
])("judges %s", (_, resources, expected) => {
  expect(found(...resources)).toEqual(expected);
});

test.each<readonly [string, string, readonly object[], readonly string[]]>([
  ["a Service with TLS", "embed: { service: { type: NodePort }, tls: { secretName: c } }", [], []],
  ["a permitted Service", "embed: { service: { type: NodePort }, allowPlaintext: true }", [], []],
  [
    "set that opens the Service",
    "embed: { service: { type: ClusterIP } }",
    [{ name: "embed.service.type", value: "LoadBalancer" }],
    [
      "embed.tls.secretName must name a Secret if embed.service.type is not ClusterIP, because requests would be sent in clear text, got nothing",
    ],
  ],
  [
    "set that permits plain text",
    "embed: { service: { type: LoadBalancer } }",
    [{ name: "embed.allowPlaintext", value: "true" }],
    [],
  ],
  [
    "Triton's Service, an Ingress and routes",
    `triton: { enabled: true, service: { type: NodePort } }
ingress: { enabled: true, host: a.example }
httpRoute: { enabled: true, parentRefs: [{ name: public, sectionName: https }] }
grpcRoute: { enabled: true, parentRefs: [{ name: public }] }`,
    [],
    [
      "triton.service.type must be ClusterIP, because requests would be sent in clear text, got another type",
      "ingress.tlsSecretName must name a Secret, because requests would be sent in clear text, got nothing",
      "grpcRoute.parentRefs must each have the sectionName of a listener with TLS, because requests would be sent in clear text, got a Gateway without one",
    ],
  ],
])("judges chart values with %s", (_, values, set, expected) => {
  expect(found(release(values, set))).toEqual(expected.map((line) => `helm_release.clip: ${line}`));
});
