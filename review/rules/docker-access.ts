import { withoutUser } from "../input/secrets.ts";
import { containerPath } from "./example-paths.ts";
import { environmentOf, resourcesOf } from "./facts.ts";
import { type ReviewRule, rule } from "./rule.ts";
import { volumesOf } from "./service-containers.ts";
import { at, blocks, text } from "./values.ts";

/** Access to the Docker engine. */
export const dockerAccessRules: readonly ReviewRule[] = [
  rule({
    id: "docker-socket-mounted",
    severity: "error",
    title: "No container mounts the Docker socket.",
    rationale:
      "Access to the Docker socket is root access to the host: it allows starting a container that mounts the host's disk.",
    inputs: "Volumes and mounts of every container on Docker.",
    fix: "remove the mount of the socket",
    example: {
      stack: "single-gpu",
      message: "must not mount the socket /var/run/docker.sock",
      edits: [
        {
          path: containerPath("embed/container", "volumes", 0),
          failing: { host_path: "/var/run/docker.sock", container_path: "/var/run/docker.sock" },
        },
      ],
    },
    *find(change) {
      const socket = /(docker|containerd|crio)\.sock$/;
      for (const { address, after = {} } of resourcesOf(change, "docker_container")) {
        const sources = [
          ...volumesOf(after).map(({ hostPath }) => hostPath),
          ...blocks(after.mounts).map(({ source }) => source),
        ];
        for (const source of sources.filter((path) => socket.test(String(path)))) {
          yield { address, message: `must not mount the socket ${String(source)}` };
        }
      }
    },
  }),
  rule({
    id: "docker-endpoint-plain",
    severity: "error",
    title: "Docker is reached over SSH, TLS or a local socket.",
    rationale:
      "Docker on `tcp://` without TLS accepts unauthenticated, unencrypted commands from every client that reaches the port.",
    inputs: "`host` of the docker provider, and the host in the output `environment`.",
    fix: "set host.docker to 'ssh://user@host'",
    example: {
      stack: "single-gpu",
      message: "Docker must be reached over SSH, TLS or a socket, got 'tcp://gpu-1:2375'",
      edits: [
        {
          path: ["output", "environment", "value", "where"],
          failing: "tcp://gpu-1:2375",
          passing: "ssh://ops@gpu-1",
        },
      ],
    },
    *find(change) {
      const providers = blocks(at(change.configuration?.provider, "docker"));
      const plain = [
        ...providers.filter((it) => it.cert_path === undefined && it.ca_material === undefined),
        { host: environmentOf(change)?.where },
      ].flatMap(({ host }) => (/^(tcp|http):\/\//.test(text(host) ?? "") ? [text(host)] : []));
      for (const host of new Set(plain)) {
        yield {
          message: `Docker must be reached over SSH, TLS or a socket, got '${withoutUser(host ?? "")}'`,
        };
      }
    },
  }),
];
