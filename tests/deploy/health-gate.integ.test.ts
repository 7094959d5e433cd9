import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { testDocker } from "./test-docker.ts";
import { buildImage, nodeImage } from "./test-image.ts";
import { type TestProject, testProject } from "./test-project.ts";

const { docker, missing } = await testDocker();

/** A deployment fails if a service does not become healthy. */
describe.skipIf(missing !== "")(
  `a service that cannot start${missing && ` (skipped: ${missing})`}`,
  () => {
    let project: TestProject;
    let image = "";
    const images: string[] = [];
    beforeAll(async () => {
      const [port = 0] = await freePorts(1);
      const built = await buildImage(docker, {
        context: fileURLToPath(new URL(".", import.meta.url)),
        file: fileURLToPath(new URL("./test-failing.Dockerfile", import.meta.url)),
        args: { NODE_IMAGE: nodeImage },
      });
      expect(built.outcome.code, built.outcome.output).toBe(0);
      image = `${built.image}:1`;
      await docker.run("tag", built.image, image);
      images.push(built.image, image);
      project = await testProject({ docker });
      await project.settings("single-gpu", {
        accelerator: "cpu",
        host: { docker: docker.endpoint },
        network: "clipstack-test-single-gpu",
        weights: "image",
        embed: { image, port },
        tritonOnnx: { enabled: false },
        tritonTrt: { enabled: false },
      });
    });
    afterAll(async () => {
      await project?.remove();
      for (const name of images) await docker.run("rmi", name).catch(() => undefined);
    });

    test("fails the deployment early, with its last log lines and without its environment", async () => {
      const startMs = performance.now();
      const { code, output } = await project.deploy("single-gpu");
      const text = output.replace(/[│╷╵\s]+/g, " ");
      expect(code, output).not.toBe(0);
      expect(text).toMatch(/single-gpu-embed restarts in a loop \(\d+ times\)/);
      expect(text).toMatch(/last log lines:.* the weights are damaged/);
      // long before the start timeout
      expect(performance.now() - startMs).toBeLessThan(150_000);
    });

    test("the next deployment waits for it again", async () => {
      expect(await project.plan("single-gpu")).toContain(
        "replace terraform_data.embed_ready_healthy",
      );
    });
  },
);
