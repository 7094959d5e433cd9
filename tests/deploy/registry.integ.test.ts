import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { succeed, testDocker } from "./test-docker.ts";
import { isReady } from "./test-load.ts";
import { type TestProject, testProject } from "./test-project.ts";

/** Deployment from a registry on this machine that requires credentials, as in an installation without the internet. */

const image = "local/clipstack-embed:test";
const [user, password] = ["team", "s3cret-word"] as const;
const htpasswd = `${user}:$2y$05$azDFvV5wsLOMUiTzB01KAumut4auUa6BGLdmF0/c3EzNDkxNv/vwa`;

const { CLIPSTACK_BUILDX: buildx } = process.env;
const { docker, missing: noDocker } = await testDocker();
const missing = await (async () => {
  if (noDocker !== "") return noDocker;
  try {
    execFileSync("docker-registry", ["--version"], { stdio: "ignore" });
  } catch {
    return "docker-registry is not installed";
  }
  return (await docker.lines("images", "--quiet", image)).length > 0 ? "" : `no image ${image}`;
})();

describe.skipIf(missing !== "")(
  `a registry with credentials${missing && ` (skipped: ${missing})`}`,
  () => {
    let folder: string;
    let registry: ChildProcess;
    let address: string;
    let name: string;
    let port: number;
    let project: TestProject;
    const config = () => join(folder, "docker");
    const withoutCredentials = async <T>(work: () => Promise<T>): Promise<T> => {
      const kept = await readFile(join(config(), "config.json"));
      await writeFile(join(config(), "config.json"), "{}");
      try {
        return await work();
      } finally {
        await writeFile(join(config(), "config.json"), kept);
      }
    };

    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), "clipstack-registry-"));
      const [own = 0, embed = 0] = await freePorts(2);
      [address, port] = [`127.0.0.1:${own}`, embed];
      name = `${address}/team/embed:1`;
      await writeFile(join(folder, "htpasswd"), htpasswd);
      const file = join(folder, "config.json");
      await writeFile(
        file,
        JSON.stringify({
          version: 0.1,
          storage: { filesystem: { rootdirectory: join(folder, "data") } },
          http: { addr: address },
          auth: { htpasswd: { realm: "team", path: join(folder, "htpasswd") } },
        }),
      );
      registry = spawn("docker-registry", ["serve", file], { stdio: "ignore" });
      await vi.waitFor(() => fetch(`http://${address}/v2/`), { timeout: 30_000 });
      if (buildx !== undefined) {
        await mkdir(join(config(), "cli-plugins"), { recursive: true });
        await symlink(buildx, join(config(), "cli-plugins/docker-buildx"));
      }
      const cli = (args: readonly string[], input?: string) =>
        succeed("docker", ["--config", config(), "--host", docker.endpoint, ...args], { input });
      await cli(["login", "--username", user, "--password-stdin", address], password);
      await cli(["tag", image, name]);
      await cli(["push", "--quiet", name]);
      await docker.run("rmi", name);
      project = await testProject({ docker, variables: { DOCKER_CONFIG: config() } });
      await project.settings("single-gpu", {
        accelerator: "cpu",
        host: { docker: docker.endpoint, registries: [address] },
        network: "clipstack-test-registry",
        embed: { port, image: name },
        tritonOnnx: { enabled: false },
        tritonTrt: { enabled: false },
      });
    });
    afterAll(async () => {
      await project?.remove();
      const format = "{{.Repository}}@{{.Digest}}";
      const pulled = await docker.lines(
        "images",
        "--digests",
        "--format",
        format,
        name.slice(0, -2),
      );
      await docker.run("rmi", "--force", name, ...pulled).catch(() => undefined);
      if (registry?.exitCode === null) {
        registry.kill();
        await once(registry, "exit");
      }
      if (folder !== undefined) await rm(folder, { recursive: true, force: true });
    });

    test("images prints what the environment pulls", async () => {
      expect(await project.clipstack("images", "single-gpu")).toMatchObject({
        code: 0,
        stdout: `${name}\n`,
      });
    });

    describe.skipIf(buildx === undefined)("images pin (skipped without CLIPSTACK_BUILDX)", () => {
      const file = () => join(project.folder, "environments/single-gpu.yaml");
      const pin = (...args: readonly string[]) =>
        project.clipstack("images", "pin", "single-gpu", ...args);

      test.each([
        [() => name, ["--platform", "linux/s390x"], "must have the platform linux/s390x, has "],
        [() => `${address}/team/embed:2`, [], "the registry has no such image or tag"],
        [() => "127.0.0.1:1/embed:1", [], "the registry cannot be read: dial tcp 127.0.0.1:1: "],
      ])("fails with one line, and keeps the file: %s", async (image, args, problem) => {
        const kept = await readFile(file(), "utf8");
        const other = kept.replace(name, image());
        await writeFile(file(), other);
        const { code, output } = await pin(...args);
        const left = await readFile(file(), "utf8");
        await writeFile(file(), kept);
        expect(output).toContain(`single-gpu: ${image()}: ${problem}`);
        expect([code, left]).toEqual([1, other]);
      });

      test("fails without the credentials of docker login", async () => {
        const { code, output } = await withoutCredentials(() => pin());
        expect([code, output]).toEqual([1, expect.stringContaining("docker login")]);
      });

      test("writes the digest behind the tag, once", async () => {
        const kept = await readFile(file(), "utf8");
        expect(await pin()).toMatchObject({ code: 0 });
        const pinned = await readFile(file(), "utf8");
        expect(pinned).toMatch(new RegExp(`image: ${name}@sha256:[0-9a-f]{64}\n`));
        expect(pinned.replace(/@sha256:\w+/, "")).toBe(kept);
        expect(await pin()).toMatchObject({
          code: 0,
          stdout: "single-gpu: every image that is pulled has a digest\n",
        });
        expect(await readFile(file(), "utf8")).toBe(pinned);
      });
    });

    test("a deployment without credentials stops", async () => {
      const { code, output } = await withoutCredentials(() => project.deploy("single-gpu"));
      expect([code === 0, output]).toEqual([
        false,
        expect.stringMatching(new RegExp(`${address}|credentials|authentication`)),
      ]);
    });

    test("the host pulls with the credentials of docker login, which the state does not contain", async () => {
      const { code, output } = await project.deploy("single-gpu");
      expect(code, output).toBe(0);
      expect(await isReady(`http://127.0.0.1:${port}/readyz`)).toBe(true);
      const state = await readFile(join(project.folder, "terraform.single-gpu.tfstate"), "utf8");
      expect(state).toContain(name);
      expect(state).not.toContain(password);
      expect(state).not.toContain(Buffer.from(`${user}:${password}`).toString("base64"));
    });
  },
);
