import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { command, testDocker } from "./test-docker.ts";
import { type TestProject, testProject } from "./test-project.ts";

/** `CLIPSTACK_OPENTOFU` names a folder with `bin/tofu`, as `.ci/opentofu` makes it; without it, `tofu` is looked for. */
const { CLIPSTACK_OPENTOFU } = process.env;
const path = CLIPSTACK_OPENTOFU === undefined ? undefined : join(CLIPSTACK_OPENTOFU, "bin");

const { docker, missing: noEngine } = await testDocker();
const tofu = path === undefined ? "tofu" : join(path, "tofu");
const noTofu = (await command(tofu, ["version"])).code === 0 ? "" : "no tofu";
const missing = noEngine || noTofu;

describe.skipIf(missing !== "")(
  `OpenTofu in place of Terraform${missing && ` (not here: ${missing})`}`,
  () => {
    let project: TestProject;
    let before: readonly string[];
    beforeAll(async () => {
      before = await docker.contents();
      project = await testProject({ docker, binary: "tofu", path });
      await project.settings("single-gpu", {
        accelerator: "cpu",
        host: { docker: docker.endpoint },
        network: "clipstack-test-single",
        embed: { port: 28002 },
        tritonOnnx: { enabled: false },
        tritonTrt: { enabled: false },
      });
    });
    afterAll(() => project?.remove());
    test("cdktf deploy brings it up", async () => {
      const { code, output } = await project.deploy("single-gpu");
      expect(code, output).toBe(0);
      console.log(output);
    });
    test("a second deploy changes nothing", async () => {
      expect(await project.plan("single-gpu")).toEqual([]);
    });
    test("destroy leaves nothing", async () => {
      const { code, output } = await project.destroy("single-gpu");
      expect(code, output).toBe(0);
      expect(await docker.contents()).toEqual(before);
    });
  },
);
