import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { imageLockFiles, type Lock, workspaceLock } from "./render-image-lock.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const json = (path: string) => JSON.parse(readFileSync(`${root}${path}`, "utf8"));
const lock: Lock = json("package-lock.json");
const imageLock: Lock = JSON.parse(imageLockFiles()[0]!.text);

const packages = {
  "": {},
  app: { version: "1.0.0", dependencies: { a: "1" }, devDependencies: { tool: "1", both: "1" } },
  "node_modules/a": {
    version: "1.0.0",
    dependencies: { b: "1" },
    optionalDependencies: { both: "1" },
  },
  "node_modules/a/node_modules/b": { version: "1.0.0", dev: true },
  "node_modules/b": { version: "2.0.0" },
  "node_modules/both": { version: "1.0.0" },
  "node_modules/tool": { version: "1.0.0", optionalDependencies: { native: "1", gone: "1" } },
  "node_modules/native": { version: "1.0.0" },
  "node_modules/elsewhere": { version: "1.0.0" },
};

test("contains the dependencies of a workspace only, and marks those that npm may omit", () => {
  expect(workspaceLock({ lockfileVersion: 3, packages }, "app")).toMatchObject({
    version: "1.0.0",
    lockfileVersion: 3,
    packages: {
      "": packages.app,
      "node_modules/a": packages["node_modules/a"],
      "node_modules/a/node_modules/b": { version: "1.0.0" },
      "node_modules/both": { version: "1.0.0", devOptional: true },
      "node_modules/native": { version: "1.0.0", dev: true, optional: true },
      "node_modules/tool": { version: "1.0.0", dev: true },
    },
  });
  const { packages: rendered } = workspaceLock({ lockfileVersion: 3, packages }, "app") as Lock;
  expect(Object.keys(rendered)).toHaveLength(6);
  expect(rendered["node_modules/a/node_modules/b"]).toEqual({ version: "1.0.0" });
});

test("prefers a package in the workspace's own folder", () => {
  const own = { ...packages, "app/node_modules/a": { version: "9.0.0" } };
  const { packages: rendered } = workspaceLock(
    { lockfileVersion: 3, packages: own },
    "app",
  ) as Lock;
  expect(rendered["node_modules/a"]).toEqual({ version: "9.0.0" });
});

test("fails when a package is not in the lock", () => {
  const { "node_modules/a/node_modules/b": _, "node_modules/b": __, ...rest } = packages;
  expect(() => workspaceLock({ lockfileVersion: 3, packages: rest }, "app")).toThrow(
    "package-lock.json has no b, which node_modules/a needs",
  );
});

test("the packages of the image have the versions of the project, with checksums", () => {
  for (const [path, { version }] of Object.entries(imageLock.packages)) {
    if (path === "") continue;
    expect(imageLock.packages[path], path).toMatchObject({
      version,
      integrity: expect.stringMatching(/^sha512-/),
    });
    expect(lock.packages[path]?.version, path).toBe(version);
  }
});

test("the image's lock contains the native packages of both architectures, and no test tools", () => {
  const names = Object.keys(imageLock.packages);
  expect(names).toEqual(
    expect.arrayContaining([
      "node_modules/@img/sharp-linux-x64",
      "node_modules/@img/sharp-linux-arm64",
      "node_modules/@img/sharp-libvips-linux-arm64",
      "node_modules/@esbuild/linux-arm64",
    ]),
  );
  // its package contains every platform
  const runtime = readdirSync(`${root}node_modules/onnxruntime-node/bin`, { recursive: true });
  for (const arch of ["x64", "arm64"]) {
    const library = new RegExp(`linux/${arch}/libonnxruntime\\.so`);
    expect(runtime).toContainEqual(expect.stringMatching(library));
  }
  expect(names.filter((name) => /vitest|cdktf|typescript|tsx/.test(name))).toEqual([]);
});

test("the image's package.json has the project's overrides of its packages", () => {
  const overridden = Object.entries(json("package.json").overrides).filter(
    ([name]) => imageLock.packages[`node_modules/${name}`] !== undefined,
  );
  expect(json("inference-image/package.json").overrides).toEqual(Object.fromEntries(overridden));
});
