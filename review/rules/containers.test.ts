import { expect, test } from "vitest";
import { plannedChange } from "../test-plans.ts";
import { rules } from "./rules.ts";

const pod = (spec: object) => ({ spec: [{ template: [{ spec: [spec] }] }] });
const socket = "must not mount the socket /run/containerd/containerd.sock";
const host_path = "/run/containerd//containerd.sock";

test.each<[address: string, after: object, message: string]>([
  [
    "kubernetes_deployment.a",
    pod({ init_container: [{ security_context: [{ privileged: true }] }] }),
    "spec.template.spec.init_container.security_context.privileged must not be true",
  ],
  [
    "kubernetes_manifest.a",
    { manifest: { spec: { containers: [{ securityContext: { privileged: true } }] } } },
    "manifest.spec.containers.securityContext.privileged must not be true",
  ],
  [
    "kubernetes_pod_v1.a",
    { spec: [{ container: [{ security_context: [{ capabilities: [{ add: ["sys_admin"] }] }] }] }] },
    "spec.container.security_context.capabilities.add must not have sys_admin",
  ],
  [
    "docker_container.a",
    { mounts: [{ source: "/var/../run/docker.sock" }] },
    "must not mount the socket /run/docker.sock",
  ],
  ["docker_volume.a", { driver_opts: { device: host_path } }, socket],
  [
    "docker_service.a",
    { task_spec: [{ container_spec: [{ mounts: [{ source: host_path }] }] }] },
    socket,
  ],
  ["kubernetes_daemonset.a", pod({ volume: [{ host_path: [{ path: host_path }] }] }), socket],
  [
    "kubernetes_manifest.a",
    { manifest: { spec: { volumes: [{ hostPath: { path: host_path } }] } } },
    socket,
  ],
  ["aws_ecs_task_definition.a", { volume: [{ host_path }] }, socket],
])("privileges and sockets of %s %j are found", (address, after, message) => {
  const change = plannedChange([{ address, actions: ["create"], after }]);
  const found = rules
    .filter(({ id }) => /^(container-privileged|docker-socket-mounted)$/.test(id))
    .flatMap((rule) => rule.find(change).map((it) => it.message));
  expect(found).toEqual([message]);
});

test("ordinary privileges and mounts pass", () => {
  const after = {
    privileged: false,
    capabilities: [{ add: ["NET_BIND_SERVICE"] }],
    volumes: [{ host_path: "/srv/docker.sock.d" }],
    upload: [{ source: "/run/docker.sock" }],
  };
  const change = plannedChange([{ address: "docker_container.a", actions: ["create"], after }]);
  const ids = rules.flatMap((rule) => rule.find(change).map(() => rule.id));
  expect(ids).not.toContain("container-privileged");
  expect(ids).not.toContain("docker-socket-mounted");
});

test.each(["deployment", "stateful_set_v1", "daemonset", "job_v1"])(
  "images of a %s have a version",
  (kind) => {
    const after = pod({
      init_container: [{ image: "a:1.2" }, { image: "a" }],
      container: [{ image: "b:latest" }],
    });
    const address = `kubernetes_${kind}.a`;
    const change = plannedChange([{ address, actions: ["create"], after }]);
    const found = rules.find(({ id }) => id === "image-version")!.find(change);
    expect(found.map(({ message }) => /got '(.*)'$/.exec(message)?.[1])).toEqual(["a", "b:latest"]);
  },
);

test("a namespace and a volume in manifests are lost as typed ones", () => {
  const of = (kind: string, name: string) => ({
    address: `kubernetes_manifest.${name}`,
    actions: ["delete"],
    before: { manifest: { kind, metadata: { name } } },
  });
  const kept = { address: "terraform_data.a", actions: ["no-op"], before: {}, after: {} };
  const change = plannedChange([
    of("Namespace", "prod"),
    of("PersistentVolumeClaim", "data"),
    kept,
  ]);
  expect(
    rules.flatMap((rule) => rule.find(change).map((it) => `${rule.id}: ${it.message}`)),
  ).toEqual([
    "volume-lost: the volume data is destroyed",
    "namespace-lost: the namespace prod is destroyed, with everything in it",
  ]);
});
