import { appendFile, chmod, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ensurePytorch, type PytorchOptions } from "./pytorch-environment.ts";

const locks = fileURLToPath(new URL("../../model_repository/export/", import.meta.url));

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-pytorch-environment-"));
});
afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

/**
 * A program that is taken for a Python: it says its version, and its virtual environments have itself as their Python,
 * whose pip does what is given.
 */
async function python(options: {
  readonly version?: string;
  readonly venv?: string;
  readonly pip?: string;
}): Promise<string> {
  const { version = "3.12.4", venv = "", pip = "" } = options;
  const file = join(folder, "python");
  await writeFile(
    file,
    `#!/bin/sh
case "$1 $2" in
  "-VV "*) echo "Python ${version} (main)" ;;
  "-c "*) echo /usr ;;
  "-m venv") ${venv}
    mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo home > "$3/pyvenv.cfg" ;;
  "-m pip") echo "$@" >> ${folder}/calls
    ${pip}
    exit 0 ;;
esac
`,
  );
  await chmod(file, 0o755);
  return file;
}

const cacheDir = () => join(folder, "cache");

async function ensure(program: string, options: Partial<PytorchOptions> = {}): Promise<string> {
  return ensurePytorch({
    source: "pypi",
    pythons: [program],
    cacheDir: cacheDir(),
    neededBytes: 1,
    ...options,
  });
}

const calls = async () =>
  (await readFile(join(folder, "calls"), "utf8").catch(() => "")).trim().split("\n");

test("installs the locked packages once, checked by their checksums", async () => {
  const program = await python({});
  const first = await ensure(program);
  expect(await ensure(program)).toBe(first);
  const [install, check, ...more] = await calls();
  expect(install).toMatch(
    /install --no-deps --only-binary :all: --require-hashes -r \S+requirements\.txt -r \S+torch-pypi\.txt$/,
  );
  expect(check).toMatch(/check$/);
  expect(more).toEqual([]);
});

test("takes PyTorch without CUDA of its own index where that is asked for", async () => {
  if (process.platform === "darwin") return;
  const program = await python({});
  const own = await ensure(program, { source: "cpu" });
  expect(own).not.toBe(await ensure(program));
  const [torch] = await calls();
  expect(torch).toMatch(
    /--index-url https:\/\/download\.pytorch\.org\/whl\/cpu -r \S+torch-cpu\.txt$/,
  );
});

test("installs again what was changed since", async () => {
  const program = await python({});
  const installed = dirname(dirname(await ensure(program)));
  await appendFile(join(installed, "pyvenv.cfg"), "changed");
  const lines: string[] = [];
  await ensure(program, { onProgress: (line) => lines.push(line) });
  expect(lines).toContainEqual(
    expect.stringMatching(/ is not what was installed: installing it again$/),
  );
  expect(await readFile(join(installed, "pyvenv.cfg"), "utf8")).toBe("home\n");
});

test("another Python has an environment of its own", async () => {
  const first = await ensure(await python({ version: "3.12.4" }));
  expect(await ensure(await python({ version: "3.13.1" }))).not.toBe(first);
});

describe("fails with one line", () => {
  test("where there is no Python", async () => {
    await expect(ensure(join(folder, "none"))).rejects.toThrow(
      /^no Python 3\.11 to 3\.14 on the PATH; install one, or name one that has PyTorch with --python$/,
    );
  });

  test("where Python is too old, and says which it is", async () => {
    await expect(ensure(await python({ version: "3.9.2" }))).rejects.toThrow(
      /: \S+python is 3\.9; /,
    );
  });

  test("where there is no room", async () => {
    await expect(ensure(await python({}), { neededBytes: 1e18 })).rejects.toThrow(
      / GB free, PyTorch needs 1000000000\.0 GB/,
    );
    expect(await calls()).toEqual([""]);
  });

  test.each([
    [
      "where Debian has left venv out",
      { venv: 'echo "ensurepip is not available"; exit 1;' },
      / cannot make virtual environments: on Debian and Ubuntu install python3-venv$/,
    ],
    [
      "where PyPI cannot be reached",
      {
        pip: 'echo "WARNING: Retrying" >&2; echo "ERROR: No matching distribution found for anyio==4.16.0" >&2; exit 1',
      },
      /^PyTorch cannot be installed: No matching distribution found for anyio==4\.16\.0$/,
    ],
    [
      "where a package is another than the lock's",
      {
        pip: 'printf "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES\\n    click==8.5.1 from https://pypi.example/click.whl:\\n" >&2; exit 1',
      },
      /^click==8\.5\.1 is not what the lock file says: it was not installed$/,
    ],
    [
      "where the disk is full meanwhile",
      { pip: 'echo "ERROR: [Errno 28] No space left on device" >&2; exit 1' },
      /^no space left where \S+ is: PyTorch was not installed$/,
    ],
  ])("%s, and leaves nothing", async (_name, what, message) => {
    await expect(ensure(await python(what))).rejects.toThrow(message);
    expect(await readdir(cacheDir())).toEqual([]);
  });
});

test("the locked files have what requirements.in asks for, each with a checksum", async () => {
  const read = (name: string) => readFile(join(locks, name), "utf8");
  const wanted = (await read("requirements.in")).match(/^[a-z_]+==\S+/gm) ?? [];
  const hashed = `${await read("requirements.txt")}\n${await read("torch-pypi.txt")}`;
  expect(wanted.length).toBeGreaterThan(4);
  for (const pin of wanted) expect(hashed).toContain(`\n${pin.replaceAll("_", "-")} `);
  const entries = hashed.split(/^(?=[a-z])/m).filter((entry) => /^[a-z]/.test(entry));
  expect(entries.filter((entry) => !/--hash=sha256:[0-9a-f]{64}/.test(entry))).toEqual([]);
  const cpu = (await read("torch-cpu.txt")).match(/^\S+==\S+/gm);
  expect(cpu).toEqual(wanted.filter((pin) => pin.startsWith("torch")).map((pin) => `${pin}+cpu`));
});
