import { existsSync } from "node:fs";
import { dirname, relative } from "node:path";
import { z } from "zod";
import type { DeployedState, Inspection } from "../../artefact/docker-inspect.ts";
import { type Environment, environment, environmentOutput } from "../../contract/environment.ts";
import { UserError } from "../../contract/user-error.ts";
import type { SynthesizedFile } from "../shared/artefact.ts";
import { type ProgramResult, runProgram } from "../shared/run-program.ts";
import { Docker, DockerError } from "./docker-command.ts";

/** Deployed environment, from Terraform's state. */
export interface Deployment {
  readonly environment: Environment;
  readonly state: DeployedState;
}

const terraformMs = 120_000;

/** Candidates for the Terraform binary: TERRAFORM_BINARY_NAME as in cdktf, else `terraform`, else `tofu`. */
const binaries = (): readonly string[] => {
  const chosen = process.env.TERRAFORM_BINARY_NAME;
  return chosen === undefined || chosen === "" ? ["terraform", "tofu"] : [chosen];
};

/** Note that a deployment from this machine lacks Terraform; undefined if it is installed. */
export async function terraformNote(): Promise<string | undefined> {
  for (const binary of binaries()) {
    const { outcome } = await runProgram(binary, ["version"], { timeoutMs: terraformMs });
    if (outcome !== "missing") return undefined;
  }
  return `${binaries().join(" or ")} is not installed on this machine; 'cdktf deploy' requires Terraform 1.11 or newer, or OpenTofu: developer.hashicorp.com/terraform/install`;
}

const outputs = z.record(z.string(), z.object({ value: z.unknown() }));

const resources = z.object({
  values: z
    .object({
      root_module: z.object({
        resources: z
          .array(z.object({ address: z.string(), values: z.looseObject({}) }))
          .default([]),
      }),
    })
    .optional(),
});

/**
 * Reads the deployed environment with Terraform, in the folder of the last deployment.
 *
 * @returns undefined if the state is empty or no deployment was made from this checkout.
 */
export async function readDeployment(
  name: string,
  file: SynthesizedFile,
  signal?: AbortSignal,
): Promise<Deployment | undefined> {
  const folder = dirname(file.file);
  // only a deployment initialises the folder
  if (!existsSync(`${folder}/.terraform`)) return undefined;
  const terraform = terraformIn(folder, signal);
  const output = await terraform(name, "output", "-json");
  const deployed = outputs.parse(JSON.parse(output))[environmentOutput]?.value;
  if (deployed === undefined) return undefined;
  const parsed = environment.safeParse(deployed);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new UserError(
      `${name}: the deployed output '${environmentOutput}' must have the schema of this version: ${issue?.path.join(".")}: ${issue?.message}; deploy again`,
    );
  }
  return { environment: parsed.data, state: stateOf(await terraform(name, "show", "-json")) };
}

/** Extracts ids and names of containers and images; the rest of the state may contain secrets. */
function stateOf(json: string): DeployedState {
  const { values } = resources.parse(JSON.parse(json));
  const all = values?.root_module.resources ?? [];
  const pick = (type: string, key: string) =>
    all.flatMap(({ address, values: of }) => {
      const found = z.string().min(1).safeParse(of[key]);
      return address.startsWith(`${type}.`) && found.success
        ? // without the key of for_each
          [[address.replace(/\[.*\]$/, ""), found.data] as const]
        : [];
    });
  return {
    ids: new Map([...pick("docker_image", "image_id"), ...pick("docker_container", "id")]),
    names: new Map(pick("docker_container", "name")),
  };
}

type Terraform = (name: string, ...args: readonly string[]) => Promise<string>;

function terraformIn(folder: string, signal?: AbortSignal): Terraform {
  const displayPath = relative("", folder) || ".";
  return async (name, ...args) => {
    let result: ProgramResult | undefined;
    for (const binary of binaries()) {
      result = await runProgram(binary, [`-chdir=${folder}`, ...args], {
        timeoutMs: terraformMs,
        signal,
        env: { CHECKPOINT_DISABLE: "1", TF_IN_AUTOMATION: "1", NO_COLOR: "1" },
      });
      signal?.throwIfAborted();
      if (result.outcome !== "missing") {
        if (result.outcome === "ended" && result.exitCode === 0) return result.stdout;
        throw new UserError(
          `${name}: ${terraformError(result, `${binary} ${args.join(" ")}`, displayPath)}`,
        );
      }
    }
    throw new UserError(
      `${name}: ${binaries().join(" or ")} must be installed on this machine to read Terraform's state`,
    );
  };
}

function terraformError(
  { outcome, stderr }: ProgramResult,
  command: string,
  displayPath: string,
): string {
  if (outcome === "late") return `'${command}' timed out after ${terraformMs / 1000} s`;
  if (/terraform init|tofu init|initiali[sz]ation required|backend .*changed/i.test(stderr)) {
    return `${displayPath} must be initialised for its backend: run npx cdktf diff ${displayPath.split("/").at(-1)}`;
  }
  // Terraform frames "Error: …" in a box
  const line = /Error: (.*)/.exec(stderr)?.[1] ?? stderr.trim().split("\n").at(-1) ?? "";
  return `'${command}' in ${displayPath} failed: ${line.trim() || "no output"}`;
}

/** Inspects containers by name; missing ones are omitted. */
export async function inspectContainers(
  endpoint: string,
  names: readonly string[],
  signal?: AbortSignal,
): Promise<Inspection> {
  try {
    const found = await new Docker(endpoint, signal).inspect(...names);
    return { ok: true, containers: new Map(found.map((it) => [it.Name, it])) };
  } catch (error) {
    if (error instanceof DockerError || error instanceof UserError) {
      return { ok: false, message: error.message };
    }
    throw error;
  }
}
