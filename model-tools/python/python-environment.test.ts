import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type StandIns, standIns } from "../../cli/test-programs.ts";
import {
  ensurePython,
  onnxruntimePackages,
  type PythonPackages,
  pytorchPackages,
} from "./python-environment.ts";

const repository = fileURLToPath(new URL("./", import.meta.url));

let folder: string;
let programs: StandIns;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-python-"));
  programs = standIns();
});
afterEach(async () => {
  programs.remove();
  await rm(folder, { recursive: true, force: true });
});

/** Shell script in place of Python with the given pip behaviour, because an installation takes minutes and needs the internet. */
function ensure(packages: PythonPackages, { version = "3.12.4", pip = "" } = {}): Promise<string> {
  programs.put(
    "python",
    `case "$1 $2" in
  "-c "*) echo "${version} (main) /usr" ;;
  "-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  "-m pip") echo "$@" >> ${folder}/calls; ${pip || "true"} ;;
esac`,
  );
  const program = join(programs.folder, "python");
  return ensurePython(packages, { program, cacheDir: join(folder, "cache"), onProgress: () => {} });
}

const calls = async () => (await readFile(join(folder, "calls"), "utf8")).trim().split("\n");

test("installs the locked packages once and verifies their checksums", async () => {
  const first = await ensure(onnxruntimePackages);
  expect(await ensure(onnxruntimePackages)).toBe(first);
  expect(await calls()).toEqual([
    expect.stringMatching(
      /--no-deps --only-binary :all: --require-hashes -r \S+\/convert\/requirements\.txt$/,
    ),
  ]);
});

test("installs PyTorch without CUDA from its own index, into another folder", async () => {
  if (process.platform === "darwin") return;
  const own = await ensure(pytorchPackages("cpu"));
  expect((await calls())[0]).toMatch(
    /--index-url https:\/\/download\.pytorch\.org\/whl\/cpu -r \S+torch-cpu\.txt$/,
  );
  expect(own).not.toBe(await ensure(pytorchPackages("pypi")));
});

test("each Python has its own environment", async () => {
  const first = await ensure(onnxruntimePackages);
  expect(await ensure(onnxruntimePackages, { version: "3.13.1" })).not.toBe(first);
});

test("fails with one line if Python is too old", async () => {
  await expect(ensure(onnxruntimePackages, { version: "3.9.2" })).rejects.toThrow(
    /python must be Python 3\.11 or newer, got 3\.9\.2; select another with --python$/,
  );
});

test("fails with pip's last line and leaves no files", async () => {
  const pip = 'echo "ERROR: No matching distribution found for onnx" >&2; exit 1';
  await expect(ensure(onnxruntimePackages, { pip })).rejects.toThrow(
    "onnxruntime cannot be installed: pip: ERROR: No matching distribution found for onnx",
  );
  expect(await readdir(join(folder, "cache"))).toEqual([]);
});

test.each([
  ["export", ["requirements.txt", "torch-pypi.txt"]],
  ["convert", ["requirements.txt"]],
])(
  "the lock of %s contains the packages of requirements.in, each with a checksum",
  async (name, locks) => {
    const read = (file: string) => readFile(join(repository, name, file), "utf8");
    const wanted = (await read("requirements.in")).match(/^[a-z_]+==\S+/gm) ?? [];
    const hashed = `\n${(await Promise.all(locks.map(read))).join("\n")}`;
    expect(wanted.length).toBeGreaterThan(1);
    for (const pin of wanted) expect(hashed).toContain(`\n${pin.replaceAll("_", "-")} `);
    const entries = hashed.split(/^(?=[a-z])/m).filter((entry) => /^[a-z]/.test(entry));
    expect(entries.filter((entry) => !/--hash=sha256:[0-9a-f]{64}/.test(entry))).toEqual([]);
  },
);
