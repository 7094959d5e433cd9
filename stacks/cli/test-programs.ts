import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { execa } from "execa";

/** For tests: programs that stand in for those that a machine cannot have, in a folder that comes first on the PATH. */
export interface StandIns {
  readonly folder: string;
  /** Put `script`, for `sh`, in the place of the program `name`. */
  put(name: string, script: string): void;
  remove(): void;
}

export function standIns(): StandIns {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-programs-"));
  return {
    folder,
    put(name, script) {
      const file = join(folder, name);
      writeFileSync(file, `#!/bin/sh\n${script}\n`);
      chmodSync(file, 0o755);
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

const clipstackProgram = fileURLToPath(new URL("clipstack.mjs", import.meta.url));

/** Run `clipstack …` as a person does, to its end. */
export function clipstack(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>> = {},
) {
  return startClipstack(args, env).done;
}

/** Start `clipstack …`. */
export function startClipstack(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>> = {},
) {
  const child = execa(process.execPath, [clipstackProgram, ...args], {
    env: { ...process.env, DOCKER_HOST: undefined, ...env },
    extendEnv: false,
    stdin: "ignore",
    reject: false,
    timeout: 120_000,
  });
  const done = child.then(({ exitCode, stdout, stderr }) => ({ code: exitCode, stdout, stderr }));
  return { child, done };
}

/** PATH with `folder` first. */
export function pathWith(folder: string): string {
  return `${folder}${delimiter}${process.env.PATH}`;
}
