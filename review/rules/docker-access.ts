import { volumesOf } from "../facts/service-containers.ts";
import { at, blocks, text } from "../facts/values.ts";
import { environmentOf, resourcesOf } from "../facts/workloads.ts";
import { withoutUser } from "../input/secrets.ts";
import { type ReviewRule, rule } from "./rule.ts";

/** Access to the Docker engine. */
export const dockerAccessRules: readonly ReviewRule[] = [
  rule({
    id: "docker-socket-mounted",
    severity: "error",
    fix: "remove the mount of the socket",
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
    fix: "set host.docker to 'ssh://user@host'",
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
