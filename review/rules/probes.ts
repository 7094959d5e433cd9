import { embedPaths } from "../../contract/embed-api.ts";
import type { Values } from "../input/change.ts";
import { ownPodContainers, probeTargetOf } from "./health.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import { at, block, blocks, text, texts } from "./values.ts";

const podPath = (...path: readonly (string | number)[]) =>
  [
    ...["resource", "kubernetes_deployment_v1", "embed/deployment"],
    ...["spec", "template", "spec", "container", 0, ...path],
  ] as const;

/** Rules on the dependencies of a pod's probes. */
export const probeRules: readonly ReviewRule[] = [
  rule({
    id: "probe-independent",
    severity: "error",
    title: "No startup or liveness probe depends on another workload.",
    rationale:
      "When a startup or liveness probe fails, the kubelet restarts the container. A gateway whose startup probe needs a ready Triton is restarted while Triton's image is still being pulled, and the first deployment fails.",
    inputs: `The startup and liveness probes of clipstack's pods: their host, the addresses in a command, and whether the startup probe of a gateway (\`BACKEND=triton\`) asks for readiness. Those of the chart are tested with the chart.`,
    fix: `probe the container itself; ${embedPaths.healthz} for the startup of a gateway, ${embedPaths.readyz} for its readiness`,
    example: {
      stack: "kind-local",
      message: "startup_probe of a gateway must not need a ready Triton, got '/readyz'",
      edits: [
        { path: podPath("env", 0, "value"), failing: "triton", passing: "triton" },
        {
          path: podPath("startup_probe", "http_get", "path"),
          failing: "/readyz",
          passing: "/healthz",
        },
      ],
    },
    find: each(ownPodContainers, ({ container }) => {
      const isGateway = blocks(container.env).some(
        ({ name, value }) => name === "BACKEND" && value === "triton",
      );
      return (["startup_probe", "liveness_probe"] as const).flatMap((name) => {
        const probe = block(container[name]);
        const asked = probeTargetOf(probe);
        const host = otherHost(probe);
        if (host !== undefined) return `${name} must ask the container itself, got host '${host}'`;
        return isGateway && name === "startup_probe" && asked?.isReadiness
          ? `startup_probe of a gateway must not need a ready Triton, got '${asked.text}'`
          : [];
      });
    }),
  }),
];

const url = /\bhttps?:\/\/(?:[^/\s@]*@)?(\[[^\]]*\]|[^:/\s"'?#]+)/g;
const own = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0)$/;

/** Host of another workload that a probe asks, over HTTP, TCP or in a command. */
function otherHost(probe: Values | undefined): string | undefined {
  const hosts = [
    text(at(probe, "http_get", "host")),
    text(at(probe, "tcp_socket", "host")),
    ...texts(at(probe, "exec", "command")).flatMap((word) =>
      [...word.matchAll(url)].map(([, host]) => host),
    ),
  ];
  return hosts.find((host) => host !== undefined && host !== "" && !own.test(host));
}
