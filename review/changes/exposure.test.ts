import { expect, test } from "vitest";
import { type PlannedResource, plannedChange, savedChange } from "../test-plans.ts";
import { exposuresOf } from "./exposure.ts";
import { comparisonOf } from "./impact-kinds.ts";

/** What is exposed after some resources are created, as `<who>: <what>`. */
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
  ["a port on the loopback", container({ ports: [{ external: 80, ip: "127.0.0.1" }] }), []],
  ["a port that is not published", container({ ports: [{ internal: 80 }] }), []],
  [
    "a port on every address",
    container({ ports: [{ external: 80, ip: "" }] }),
    ["port: port 80/tcp on 0.0.0.0", keyUnknown],
  ],
  [
    "a port of another program, which may not read API_KEY",
    container({ ports: [{ external: 80, ip: "10.0.0.1", protocol: "udp" }], env: ["API_KEY=x"] }),
    ["port: port 80/udp on 10.0.0.1", keyUnknown],
  ],
  [
    "the network of the host",
    container({ network_mode: "host" }),
    ["port: all its ports, on the host network", keyUnknown],
  ],
  [
    "privileges",
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
    "root in a container whose end the apply waits for",
    container({ user: "0:0", must_run: false, attach: true }),
    [],
  ],
  [
    "root in a container that may go on running",
    container({ user: "0:0", must_run: false }),
    ["privilege: runs as root"],
  ],
  [
    "a network of the host's physical one",
    { address: "docker_network.n", after: { driver: "macvlan" } },
    ["port: every port of its containers, through a macvlan network"],
  ],
  [
    "a volume that is a folder of the host",
    { address: "docker_volume.v", after: { driver_opts: { type: "none", device: "/etc" } } },
    ["privilege: /etc of the host is mounted"],
  ],
  [
    "what gives the host away",
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
      "privilege: no user namespace: root in it is root on the host",
      "privilege: the device /dev/sda of the host",
      "privilege: without seccomp",
    ],
  ],
  [
    "pods that have their node",
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
    "a Service at another address",
    {
      address: "kubernetes_service_v1.s",
      after: { spec: [{ type: "ClusterIP", external_ips: ["203.0.113.7"] }] },
    },
    ["port: a Service at 203.0.113.7"],
  ],
  [
    "an Ingress and its names",
    {
      address: "kubernetes_ingress_v1.i",
      after: { metadata: [{ name: "web" }], spec: [{ rule: [{ host: "public.example" }] }] },
    },
    ["port: an Ingress, web, of public.example"],
  ],
  [
    "a manifest",
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
    "rights in the cluster",
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
    "pods that may be root",
    pods({ container: [{ name: "c", security_context: [{ privileged: true }] }] }),
    ["privilege: c: may run as root", "privilege: c: privileged"],
  ],
  [
    "pods that may not",
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
])("of %s", (_, resource, expected) => {
  expect(exposed(resource)).toEqual(expected);
});

test("a NodePort that kind maps to the loopback is not exposed", () => {
  expect(exposuresOf(comparisonOf(savedChange("kind-local-create")))).toEqual([]);
});

test("says what is new, what is gone and what is as before", () => {
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
    "gone port 80/tcp on 0.0.0.0",
    "unchanged port 90/tcp on 0.0.0.0",
  ]);
});
