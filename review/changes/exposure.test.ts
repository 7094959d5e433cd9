import { expect, test } from "vitest";
import type { Service } from "../../contract/environment.ts";
import { type PlannedResource, plannedChange, savedChange } from "../test-plans.ts";
import { exposuresOf } from "./exposure.ts";
import { comparisonOf } from "./impact-kinds.ts";

/** Exposures of created resources, as `<kind>: <description>`. */
function exposed(...resources: readonly Omit<PlannedResource, "actions">[]): readonly string[] {
  const change = plannedChange(resources.map((it) => ({ ...it, actions: ["create"] })));
  return exposuresOf(comparisonOf(change)).map(
    ({ kind, description }) => `${kind}: ${description}`,
  );
}
const keyUnknown = "authentication: authentication not examined";
const container = (after: object) => ({ address: "docker_container.a", after });
const pods = (spec: object) => ({
  address: "kubernetes_deployment_v1.a",
  after: { spec: [{ template: [{ spec: [spec] }] }] },
});

test.each<readonly [string, Omit<PlannedResource, "actions">, readonly string[]]>([
  [
    "a port on the loopback interface",
    container({ ports: [{ external: 80, ip: "127.0.0.1" }] }),
    [],
  ],
  [
    "a port without a host port",
    container({ ports: [{ internal: 80 }, { internal: 81, ip: "127.0.0.1" }] }),
    ["port: a free port for 80/tcp on 0.0.0.0", keyUnknown],
  ],
  [
    "a host port that is known only after the apply",
    {
      ...container({ ports: [{ internal: 8000, ip: "0.0.0.0" }] }),
      more: { after_unknown: { ports: [{ external: true }] } },
    },
    ["port: a free port for 8000/tcp on 0.0.0.0", keyUnknown],
  ],
  [
    "a port on every address",
    container({ ports: [{ external: 80, ip: "" }] }),
    ["port: port 80/tcp on 0.0.0.0", keyUnknown],
  ],
  [
    "another program with API_KEY",
    container({ ports: [{ external: 80, ip: "10.0.0.1", protocol: "udp" }], env: ["API_KEY=x"] }),
    ["port: port 80/udp on 10.0.0.1", keyUnknown],
  ],
  [
    "the host network",
    container({ network_mode: "host" }),
    ["port: all its ports, on the host network", keyUnknown],
  ],
  [
    "a privileged container",
    container({
      privileged: true,
      user: "root",
      capabilities: [{ add: ["SYS_ADMIN"] }],
      volumes: [{ host_path: "/var/run/docker.sock" }],
    }),
    [
      "privilege: capabilities SYS_ADMIN",
      "privilege: mounts the Docker socket",
      "privilege: privileged",
      "privilege: runs as root",
    ],
  ],
  [
    "a one-shot container that runs as root",
    container({ user: "0:0", must_run: false, attach: true }),
    [],
  ],
  [
    "a container that runs as root and may keep running",
    container({ user: "0:0", must_run: false }),
    ["privilege: runs as root"],
  ],
  [
    "a macvlan network",
    { address: "docker_network.n", after: { driver: "macvlan" } },
    ["port: every port of its containers, through a macvlan network"],
  ],
  [
    "a volume on a host folder",
    { address: "docker_volume.v", after: { driver_opts: { type: "none", device: "/etc" } } },
    ["privilege: /etc of the host is mounted"],
  ],
  [
    "access to the host",
    container({
      publish_all_ports: true,
      userns_mode: "host",
      security_opts: ["seccomp=unconfined", "no-new-privileges:true"],
      devices: [{ host_path: "/dev/sda" }],
      volumes: [{ host_path: "/" }, { host_path: "/var/run/" }, { host_path: "/srv/models" }],
    }),
    [
      "port: every port that its image exposes, on every interface",
      keyUnknown,
      "privilege: / of the host is mounted",
      "privilege: /var/run of the host is mounted",
      "privilege: no user namespace: its root user is root on the host",
      "privilege: the device /dev/sda of the host",
      "privilege: without seccomp",
    ],
  ],
  [
    "pods with access to their node",
    pods({
      host_ipc: true,
      security_context: [{ run_as_non_root: true }],
      volume: [{ host_path: [{ path: "/etc" }] }],
      init_container: [{ name: "i", security_context: [{ privileged: true }] }],
      container: [{ name: "c", port: [{ container_port: 80, host_port: 8_002 }] }],
    }),
    [
      "port: port 8002/tcp of its node",
      "privilege: /etc of its node is mounted",
      "privilege: i: privileged",
      "privilege: shares the IPC namespace of its node",
    ],
  ],
  [
    "a Job",
    {
      address: "kubernetes_job_v1.j",
      after: {
        spec: [{ template: [{ spec: [{ host_network: true, container: [] }] }] }],
      },
    },
    ["privilege: shares the network namespace of its node"],
  ],
  [
    "a Service with an external IP",
    {
      address: "kubernetes_service_v1.s",
      after: { spec: [{ type: "ClusterIP", external_ips: ["203.0.113.7"] }] },
    },
    ["port: a Service at 203.0.113.7"],
  ],
  [
    "an Ingress with a host name",
    {
      address: "kubernetes_ingress_v1.i",
      after: { metadata: [{ name: "web" }], spec: [{ rule: [{ host: "public.example" }] }] },
    },
    ["port: an Ingress, web, for public.example"],
  ],
  [
    "a DaemonSet in a manifest",
    {
      address: "kubernetes_manifest.m",
      after: {
        manifest: {
          kind: "DaemonSet",
          metadata: { name: "d" },
          spec: {
            template: {
              spec: {
                hostPID: true,
                volumes: [{ hostPath: { path: "/" } }],
                containers: [{ name: "c", securityContext: { runAsUser: 0 } }],
              },
            },
          },
        },
      },
    },
    [
      "privilege: / of its node is mounted",
      "privilege: c: may run as root",
      "privilege: shares the PID namespace of its node",
    ],
  ],
  [
    "a Service in a manifest",
    {
      address: "kubernetes_manifest.m",
      after: {
        manifest: {
          kind: "Service",
          spec: { type: "NodePort", ports: [{ nodePort: 30_092 }], externalIPs: ["203.0.113.7"] },
        },
      },
    },
    ["port: a Service at 203.0.113.7", "port: port 30092/tcp on every node (NodePort)"],
  ],
  [
    "a role binding for all users",
    {
      address: "kubernetes_cluster_role_binding_v1.b",
      after: {
        role_ref: [{ kind: "ClusterRole", name: "cluster-admin" }],
        subject: [{ kind: "Group", name: "system:unauthenticated" }],
      },
    },
    ["privilege: Group system:unauthenticated has the ClusterRole cluster-admin"],
  ],
  [
    "a NodePort",
    {
      address: "kubernetes_service_v1.s",
      after: { spec: [{ type: "NodePort", port: [{ node_port: 30_092, protocol: "TCP" }] }] },
    },
    ["port: port 30092/tcp on every node (NodePort)"],
  ],
  [
    "a load balancer",
    {
      address: "kubernetes_service_v1.s",
      after: { spec: [{ type: "LoadBalancer", port: [{ port: 80 }] }] },
    },
    ["port: port 80/tcp on a load balancer"],
  ],
  [
    "pods that may run as root",
    pods({ container: [{ name: "c", security_context: [{ privileged: true }] }] }),
    ["privilege: c: may run as root", "privilege: c: privileged"],
  ],
  [
    "pods that must not run as root",
    pods({ security_context: [{ run_as_non_root: true }], container: [{ name: "c" }] }),
    [],
  ],
  [
    "a release",
    {
      address: "helm_release.r",
      after: {
        values: ["embed: { service: { type: LoadBalancer }, auth: { allowAnonymous: true } }"],
      },
    },
    ["port: a Service of type LoadBalancer", "authentication: no authentication"],
  ],
])("reports the exposures of %s", (_, resource, expected) => {
  expect(exposed(resource)).toEqual(expected);
});

test("lists the servers on other hosts that receive images", () => {
  const address = "docker_container.embed";
  const service = { name: "embed", upstreams: ["gpu-2:8011"] } as unknown as Service;
  const facts = (env: readonly string[]) => ({
    values: new Map([[address, { type: "docker_container", values: { env } }]]),
    services: new Map([[address, service]]),
  });
  const found = (env: readonly string[]) =>
    exposuresOf({ ...comparisonOf(plannedChange([])), after: facts(env) }).map(
      ({ description }) => description,
    );
  expect(found([])).toEqual(["sends images to gpu-2:8011 in clear text"]);
  expect(found(["TRITON_TLS_CA_FILE=/tls/ca.pem"])[0]).toBe("sends images to gpu-2:8011 over TLS");
});

test("names the exposed component of a release", () => {
  const values = ["triton: { service: { type: NodePort } }"];
  const change = plannedChange([
    { address: "helm_release.r", actions: ["create"], after: { values } },
  ]);
  expect(exposuresOf(comparisonOf(change))).toMatchObject([{ name: "triton" }]);
});

test("ignores a NodePort that kind maps to the loopback interface", () => {
  expect(exposuresOf(comparisonOf(savedChange("kind-local-create")))).toEqual([]);
});

test("distinguishes new, removed and unchanged exposures", () => {
  const open = (port: number) => ({
    env: ["API_KEY=x"],
    ports: [{ external: port, ip: "0.0.0.0" }],
  });
  const change = plannedChange([
    { address: "docker_container.a", before: open(80), after: open(81) },
    { address: "docker_container.b", actions: ["no-op"], before: open(90), after: open(90) },
  ]);
  expect(
    exposuresOf(comparisonOf(change))
      .filter(({ kind }) => kind === "port")
      .map(({ status, description }) => `${status} ${description}`),
  ).toEqual([
    "new port 81/tcp on 0.0.0.0",
    "removed port 80/tcp on 0.0.0.0",
    "unchanged port 90/tcp on 0.0.0.0",
  ]);
});
