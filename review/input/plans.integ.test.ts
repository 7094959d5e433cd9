import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { type StandIns, standIns } from "../../cli/test-programs.ts";
import { testDocker } from "../../tests/deploy/test-docker.ts";
import { buildImage, serverImage } from "../../tests/deploy/test-image.ts";
import {
  keepLockedMemoryLimit,
  nvidiaSmi,
  type TestProject,
  testProject,
  tritonPortsOf,
} from "../../tests/deploy/test-project.ts";
import {
  actionLines,
  type PlanCase,
  planCases,
  planLines,
  plantedKey,
  reviewedParts,
  type SavedPlan,
} from "../test-plans.ts";

/**
 * Creates the plans of `planCases` with the docker provider on a real engine, without a GPU, and compares their actions with the saved
 * plans in `plans/`. `CLIPSTACK_WRITE_PLANS=1` overwrites the saved plans.
 */

const folder = fileURLToPath(new URL("./plans/", import.meta.url));
const write = process.env.CLIPSTACK_WRITE_PLANS === "1";
const { docker, missing: noEngine } = await testDocker();
const runtimes = noEngine || (await docker.run("info", "--format", "{{json .Runtimes}}"));
const missing =
  noEngine || (runtimes.includes('"nvidia"') ? "" : "the engine has no runtime 'nvidia'");

/** Image names in the settings, which the engine has during the test. */
const tritonImages = [
  "nvcr.io/nvidia/tritonserver:26.05-py3",
  "nvcr.io/nvidia/tritonserver:26.04-py3",
] as const;
const embedImage = "registry.example/clipstack/embed:0.1.0-gpu";

describe.skipIf(missing !== "")(
  `plans of the docker provider${missing && ` (not here: ${missing})`}`,
  () => {
    let programs: StandIns;
    let project: TestProject;
    const images: string[] = [];
    let ports: readonly [number, number, number];

    beforeAll(async () => {
      programs = standIns();
      programs.put("nvidia-smi", nvidiaSmi([{ uuid: "GPU-8a56a4bc-184b-a047-2620-be16fdbd5b40" }]));
      project = await testProject({
        docker,
        path: programs.folder,
        variables: { TF_VAR_embed_api_key: plantedKey },
      });
      const [embed = 0, onnx = 0, trt = 0] = await freePorts(3);
      ports = [embed, onnx, trt];
      const server = await serverImage(docker);
      images.push(server);
      const standIn = await buildImage(docker, {
        context: folder,
        file: fileURLToPath(new URL("../test-triton-and-embed.Dockerfile", import.meta.url)),
        args: { EMBED_IMAGE: server },
      });
      images.push(standIn.image);
      expect(standIn.outcome.code, standIn.outcome.output).toBe(0);
      for (const name of [...tritonImages, embedImage]) {
        await docker.run("tag", standIn.image, name);
        images.push(name);
      }
      await keepLockedMemoryLimit(docker, project, standIn.image);
    });
    afterAll(async () => {
      await project?.remove();
      programs?.remove();
      for (const name of images) await docker.run("rmi", name).catch(() => undefined);
    });

    const writeSettings = (change: PlanCase["settings"] = {}) =>
      project.settings("single-gpu", {
        accelerator: "gpu",
        host: { docker: docker.endpoint, gpu: change.gpu ?? "rtx-4080", count: 1 },
        network: "clipstack-test-review",
        embed: {
          image: embedImage,
          port: ports[0],
          expose: change.expose ?? "loopback",
          allowPlaintext: change.expose !== undefined,
        },
        tritonOnnx: {
          image: tritonImages[0],
          ports: tritonPortsOf(ports[1]),
          maxQueueDelayMicroseconds: change.queueDelay ?? 5_000,
        },
        tritonTrt: {
          image: change.trtImage === "other" ? tritonImages[1] : tritonImages[0],
          ports: tritonPortsOf(ports[2]),
          maxQueueDelayMicroseconds: change.queueDelay ?? 5_000,
        },
      });

    /** Creates a plan and replaces the values that are specific to this machine. */
    const planned = async (...options: readonly string[]): Promise<unknown> => {
      await project.synthesize();
      const cwd = join(project.folder, "cdktf.out", "stacks", "single-gpu");
      const file = join(project.folder, "review.plan");
      for (const args of [
        ["init", "-input=false"],
        ["plan", "-input=false", `-out=${file}`, ...options],
      ]) {
        const { code, output } = await project.terraform(cwd, ...args);
        expect(code, output).toBe(0);
      }
      const { code, stdout, output } = await project.terraform(cwd, "show", "-json", file);
      expect(code, output).toBe(0);
      return JSON.parse(portable(stdout));
    };

    const portable = (text: string) => {
      const numbers = [
        [ports[0], 8002],
        ...[0, 1, 2].map((index) => [ports[1] + index, 8010 + index] as const),
        ...[0, 1, 2].map((index) => [ports[2] + index, 8020 + index] as const),
      ] as const;
      const generic = text
        .replaceAll(project.folder, "/project")
        .replaceAll(docker.endpoint, "unix:///var/run/docker.sock")
        .replaceAll(/"[^"]*\/volumes\/([^"/]*)\/_data"/g, '"/var/lib/docker/volumes/$1/_data"')
        .replaceAll(/"bridge":"clip-[0-9a-f]+"/g, '"bridge":"docker0"');
      return numbers.reduce(
        (all, [own, other]) => all.replaceAll(String(own), String(other)),
        generic,
      );
    };

    for (const { name, deployed, settings, destroy } of planCases) {
      test(`${name}: the plan has the actions of the saved plan`, async () => {
        if (deployed) {
          await writeSettings();
          if (!(await deployedAlready())) {
            const { code, output } = await project.deploy("single-gpu");
            expect(code, output).toBe(0);
          }
        }
        await writeSettings(settings);
        const plan = withoutChecks(await planned(...(destroy ? ["-destroy"] : [])));
        const file = join(folder, `${name}.plan.json`);
        if (write) await writeFile(file, planLines({ ...plan }));
        const saved = withoutChecks(JSON.parse(await readFile(file, "utf8")));
        expect(actionLines(plan)).toEqual(actionLines(saved));
      });
    }

    const deployedAlready = async () =>
      (await docker.lines("ps", "--format", "{{.Names}}")).includes("single-gpu-embed");
  },
);

/** Also omits the checks, which are unknown before the environment exists. */
function withoutChecks(plan: unknown): SavedPlan {
  const { checks: _checks, ...rest } = reviewedParts(plan) as SavedPlan & {
    readonly checks?: unknown;
  };
  return rest;
}
