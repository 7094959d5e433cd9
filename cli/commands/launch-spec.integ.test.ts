import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { command, testDocker } from "../../tests/deploy/test-docker.ts";
import { buildTimeoutMs, nodeImage } from "../../tests/deploy/test-image.ts";
import { type TestProject, testProject } from "../../tests/deploy/test-project.ts";

const { docker, missing } = await testDocker();
/** Names unique to this test. */
const embedImage = "clipstack-test/launch-embed";
const image = "clipstack-test/launch-all-in-one";

describe.skipIf(missing !== "")(
  `clipstack launch-spec${missing && ` (skipped: ${missing})`}`,
  () => {
    let project: TestProject;
    let ports: readonly number[];

    const onEngine = (program: string, ...args: readonly string[]) =>
      command(program, args, {
        cwd: project.folder,
        env: { ...process.env, DOCKER_HOST: docker.endpoint },
        timeoutMs: buildTimeoutMs,
      });

    const tritonPorts = (first: number) => ({
      http: ports[first],
      grpc: ports[first + 1],
      metrics: ports[first + 2],
    });

    beforeAll(async () => {
      project = await testProject({ docker });
      ports = await freePorts(7);
      await project.settings("single-gpu", {
        accelerator: "cpu",
        host: { docker: docker.endpoint },
        weights: "image",
        embed: { port: ports[0] },
        tritonOnnx: { server: "emulator", modelControl: "explicit", ports: tritonPorts(1) },
        tritonTrt: { server: "emulator", modelControl: "explicit", ports: tritonPorts(4) },
      });
    });
    afterAll(async () => {
      await onEngine("docker", "rm", "--force", "--volumes", "single-gpu");
      await onEngine("docker", "image", "rm", image, embedImage);
      await project?.remove();
    });

    test(
      "prints a build and a docker run that bring every service up at the ports of the settings",
      async () => {
        const result = await project.clipstack(
          ...["launch-spec", "single-gpu", "--image", image, "--format", "json"],
        );
        expect(result.code, result.output).toBe(0);
        const spec = JSON.parse(result.stdout);

        const embed = await onEngine(
          "docker",
          ...["build", "--tag", embedImage, "--build-arg", `NODE_IMAGE=${nodeImage}`],
          ...["--file", "inference-image/Dockerfile", "."],
        );
        expect(embed.code, embed.output).toBe(0);
        const [program = "", ...words] = (spec.build as string[]).map((word) =>
          word.replace("clipstack/embed:cpu", embedImage),
        );
        const built = await onEngine(program, ...words);
        expect(built.code, built.output).toBe(0);

        const printed = await project.clipstack(
          ...[
            "launch-spec",
            "single-gpu",
            "--image",
            image,
            "--no-synth",
            "--format",
            "docker-run",
          ],
        );
        const started = await onEngine("sh", "-c", printed.stdout);
        expect(started.code, started.output).toBe(0);

        await expect
          .poll(() => docker.run("inspect", "--format", "{{.State.Health.Status}}", "single-gpu"), {
            timeout: 300_000,
            interval: 500,
          })
          .toBe("healthy");
        const paths = ["/readyz", "/v2/health/ready", "/v2/health/ready"];
        const urls = [0, 1, 4].map((index, i) => `http://127.0.0.1:${ports[index]}${paths[i]}`);
        const answers = await Promise.all(urls.map(async (url) => (await fetch(url)).status));
        expect(answers).toEqual([200, 200, 200]);
        // as declared: no privileges, read-only root
        const { HostConfig, Config } = await docker.inspect("single-gpu");
        expect(HostConfig).toMatchObject({ ReadonlyRootfs: true, CapDrop: ["ALL"] });
        expect(Config).toMatchObject({ User: "1000:1000" });
      },
      buildTimeoutMs,
    );
  },
);
