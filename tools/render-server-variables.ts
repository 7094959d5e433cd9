import { z } from "zod";
import { defaultModel } from "../contract/models/index.ts";
import { type ServerEnvName, serverEnv } from "../contract/server/server-env.ts";
import { ownedVariables, settingName } from "../contract/server/server-settings.ts";
import type { RenderedFile } from "./rendered-file.ts";

/** `docs/server-variables.md`: the environment variables of the embed server, and the settings for them. */
export function serverVariablesFile(): RenderedFile {
  const lines = [
    "<!-- Rendered by `npm run render` from contract/server/server-env.ts. Do not edit. -->",
    "",
    "# Variables of the embed server",
    "",
    "An environment sets a variable with the setting in the third column; the settings `embed.server` exist on every stack, and as chart values",
    "`embed.server`. Stacks and the chart derive the other variables from the settings in parentheses.",
    "",
    "| variable | default | setting | |",
    "| --- | --- | --- | --- |",
    ...(Object.keys(serverEnv.shape) as ServerEnvName[]).map(row),
    "",
  ];
  return { path: "docs/server-variables.md", text: lines.join("\n") };
}

function row(name: ServerEnvName): string {
  const owned: Readonly<Record<string, string>> = ownedVariables;
  const { description } = serverEnv.shape[name];
  const setting =
    owned[name] === undefined ? `\`embed.server.${settingName(name)}\`` : `(${owned[name]})`;
  const cells = [`\`${name}\``, defaultOf(name), setting, `${valuesOf(name)}${description}`];
  return `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
}

function defaultOf(name: ServerEnvName): string {
  if (name === "MODELS") return `images with \`${defaultModel.name}\``;
  const value: unknown = serverEnv.shape[name].safeParse(undefined).data;
  return value === undefined || String(value) === "" ? "" : `\`${value}\``;
}

/** Rule of a value, before the description. */
function valuesOf(name: ServerEnvName): string {
  const schema = z.toJSONSchema(serverEnv.shape[name], { unrepresentable: "any" });
  if (schema.enum !== undefined) return `${schema.enum.map((it) => `\`${it}\``).join(", ")}. `;
  return schema.minimum === undefined ? "" : `${schema.minimum} to ${schema.maximum}. `;
}
