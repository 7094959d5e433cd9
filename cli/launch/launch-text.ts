import { shellQuote } from "../shared/shell-quote.ts";
import type { LaunchPort, LaunchSpec } from "./launch-spec-types.ts";

/** Words of the `docker run` of a specification, grouped by option. */
export function dockerRun(spec: LaunchSpec): readonly (readonly string[])[] {
  return [
    ["docker", "run"],
    ["--detach"],
    ["--name", spec.environment],
    ...spec.options,
    ...(spec.gpu === undefined ? [] : [["--gpus", spec.gpu.request]]),
    ...Object.entries(spec.env).map(([name, value]) => ["--env", `${name}=${value}`]),
    ...spec.secrets.map((name) => ["--env", name]),
    ...spec.ports.map(({ address, host, container }) => [
      "--publish",
      `${address}:${host}:${container}`,
    ]),
    ...spec.volumes.map(({ source, target, readOnly }) => [
      "--volume",
      `${source}:${target}${readOnly ? ":ro" : ""}`,
    ]),
    [spec.image],
  ];
}

/** Command for a POSIX shell, one option per line. */
export function shellText(words: readonly (readonly string[])[]): string {
  return words.map((part) => part.map(shellQuote).join(" ")).join(" \\\n  ");
}

function specText(spec: LaunchSpec): string {
  const line = (name: string, values: readonly string[]) =>
    values.length === 0 ? [] : [`${name}:`, ...values.map((value) => `  ${value}`), ""];
  const portText = ({ service, protocol, container, host, address }: LaunchPort) =>
    `${container}  ${service} ${protocol}, ${address === "127.0.0.1" ? "reachable from the host only" : "open"}, at ${address}:${host}`;
  return [
    `${spec.environment} as one container`,
    "",
    ...line("image", [spec.image, `built by: ${spec.build.map(shellQuote).join(" ")}`]),
    ...line(
      "GPU",
      spec.gpu === undefined
        ? []
        : [`1 × ${spec.gpu.name}, ${spec.gpu.vramMiB} MiB; --gpus ${spec.gpu.request}`],
    ),
    ...line("ports of the container", spec.ports.map(portText)),
    ...line("environment", [
      ...Object.entries(spec.env).map(([name, value]) => `${name}=${value}`),
      ...spec.secrets.map((name) => `${name}=… (secret)`),
    ]),
    ...line(
      "volumes",
      spec.volumes.map(
        ({ source, target, readOnly }) =>
          `${target} from ${source}${readOnly ? ", read-only" : ""}`,
      ),
    ),
    ...line("notes", spec.notes),
    shellText(dockerRun(spec)),
  ].join("\n");
}

/** Renderers by output format. */
export const formats = {
  text: specText,
  json: (spec: LaunchSpec) =>
    JSON.stringify({ ...spec, dockerRun: dockerRun(spec).flat() }, null, 2),
  "docker-run": (spec: LaunchSpec) => shellText(dockerRun(spec)),
} as const;
