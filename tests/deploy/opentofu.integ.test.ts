import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { command, testDocker } from "./test-docker.ts";
import { isReady } from "./test-load.ts";
import { onlyEmbed, type TestProject, testProject } from "./test-project.ts";

/** `CLIPSTACK_OPENTOFU`: folder with `bin/tofu`, as printed by `.ci/opentofu`; default: `tofu` on the PATH. */
const { CLIPSTACK_OPENTOFU } = process.env;
const path = CLIPSTACK_OPENTOFU === undefined ? undefined : join(CLIPSTACK_OPENTOFU, "bin");
const tofu = path === undefined ? "tofu" : join(path, "tofu");

const { docker, missing: noEngine } = await testDocker();
const noTofu = (await command(tofu, ["version"])).code === 0 ? "" : "no tofu";
const missing = noEngine || noTofu;

describe.skipIf(missing !== "")(
  `OpenTofu in place of Terraform${missing && ` (skipped: ${missing})`}`,
  () => {
    let project: TestProject;
    let before: readonly string[];
    let port: number;

    beforeAll(async () => {
      before = await docker.contents();
      project = await testProject({ docker, binary: "tofu", path });
      [port = 0] = await freePorts(1);
    });
    afterAll(() => project?.remove());

    test("accepts both environments of a GPU host", async () => {
      expect(await project.validate("single-gpu")).toEqual([]);
      expect(await project.validate("multi-gpu-4x")).toEqual([]);
    });

    test("deploys and then plans no change", async () => {
      await project.settings("single-gpu", onlyEmbed(docker, port));
      const { code, output } = await project.deploy("single-gpu");
      expect(code, output).toBe(0);
      expect(await isReady(`http://127.0.0.1:${port}/readyz`)).toBe(true);
      expect(await project.plan("single-gpu")).toEqual([]);
    });

    test("destroys what it deployed", async () => {
      const { code, output } = await project.destroy("single-gpu");
      expect(code, output).toBe(0);
      expect(await docker.contents()).toEqual(before);
    });
  },
);
