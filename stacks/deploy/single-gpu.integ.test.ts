import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { testDocker } from "./test-docker.ts";
import { type TestProject, testProject } from "./test-project.ts";

const { docker, missing } = await testDocker();

describe.skipIf(missing !== "")(
  `single-gpu, deployed${missing && ` (not here: ${missing})`}`,
  () => {
    let project: TestProject;
    let before: readonly string[];
    beforeAll(async () => {
      before = await docker.contents();
      project = await testProject({ docker });
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
