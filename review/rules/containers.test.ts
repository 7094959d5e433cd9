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
