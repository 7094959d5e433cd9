import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts, isPortInUse } from "../../artefact/free-ports.ts";
import { type StandIns, standIns } from "../../cli/test-programs.ts";
import { perGpuHostPorts } from "../../contract/ports.ts";
import type { ShippedEnvironment } from "../../stacks/settings/environment-files.ts";
import { testDocker } from "./test-docker.ts";
import { buildImage, serverImage } from "./test-image.ts";
import { embedOnce } from "./test-load.ts";
import {
  builtImage,
  keepLockedMemoryLimit,
  nvidiaSmi,
  type TestProject,
  testProject,
  tritonPortsOf,
} from "./test-project.ts";

/**
 * GPU requests of containers as received by the engine, without a GPU: a stand-in for NVIDIA's hook does nothing, a stand-in for
 * `nvidia-smi` prints recorded output, and the image runs clipstack's server in place of `tritonserver`, so that every container
 * becomes healthy.
 */

const { docker, missing: noEngine } = await testDocker();
const runtimes = noEngine || (await docker.run("info", "--format", "{{json .Runtimes}}"));
const portsInUse = await Promise.all(
  [0, 1, 2, 3].map((index) => isPortInUse(perGpuHostPorts(index).http)),
);
const missing =
  noEngine ||
  (runtimes.includes('"nvidia"') ? "" : "the engine has no runtime 'nvidia'") ||
  (portsInUse.includes(true) ? "ports 8010 to 8042 are not all free" : "");

const photo = await readFile(
  fileURLToPath(new URL("../../model-tools/samples/dunes.jpg", import.meta.url)),
);
const uuids = [0, 1, 2, 3].map((index) => `GPU-8a56a4bc-184b-a047-2620-be16fdbd5b4${index}`);

describe.skipIf(missing !== "")(`GPUs of containers${missing && ` (skipped: ${missing})`}`, () => {
  let programs: StandIns;
  let project: TestProject;
  const images: string[] = [];
  let image = "";
  let ports: readonly number[];

  beforeAll(async () => {
    programs = standIns();
    programs.put("nvidia-smi", nvidiaSmi(uuids.map((uuid) => ({ uuid }))));
    project = await testProject({ docker, path: programs.folder });
    ports = await freePorts(3);
    const server = await serverImage(docker);
    images.push(server);
    const standIn = await buildImage(docker, {
      context: fileURLToPath(new URL(".", import.meta.url)),
      file: fileURLToPath(new URL("./test-triton-stand-in.Dockerfile", import.meta.url)),
      args: { EMBED_IMAGE: server },
    });
    expect(standIn.outcome.code, standIn.outcome.output).toBe(0);
    await keepLockedMemoryLimit(docker, project, standIn.image);
    // a release whose TensorRT takes its precision from the configuration
    image = `${standIn.image}:26.05-py3`;
    await docker.run("tag", standIn.image, image);
    images.push(standIn.image, image);
  });
  afterAll(async () => {
    await project?.remove();
    programs?.remove();
    for (const name of images) await docker.run("rmi", name).catch(() => undefined);
  });

  const deploy = async (
    environment: ShippedEnvironment,
    settings: Readonly<Record<string, unknown>>,
  ) => {
    await project.settings(environment, {
      accelerator: "gpu",
      network: `clipstack-test-${environment}`,
      ...settings,
    });
    const { code, output } = await project.deploy(environment);
    expect(code, output).toBe(0);
  };

  const host = (count: number) => ({ docker: docker.endpoint, gpu: "rtx-4080", count });

  /** GPU settings of a container according to the engine. */
  const gpusOf = async (container: string) => {
    const { HostConfig, Config } = await docker.inspect(container);
    return {
      runtime: HostConfig.Runtime,
      requests: (HostConfig.DeviceRequests ?? []).map(({ Count, DeviceIDs, Capabilities }) => ({
        count: Count,
        ids: DeviceIDs,
        capabilities: Capabilities,
      })),
      visible: Config.Env.filter((entry) => entry.startsWith("NVIDIA_VISIBLE_DEVICES=")),
    };
  };
  const one = (id: string) => ({
    runtime: "runc",
    requests: [{ count: 0, ids: [id], capabilities: [["gpu"]] }],
    visible: [`NVIDIA_VISIBLE_DEVICES=${id}`],
  });

  test("one GPU by UUID is requested as a device", async () => {
    const gpus = [uuids[0]];
    await deploy("single-gpu", {
      host: host(1),
      embed: { enabled: false, image: builtImage() },
      tritonOnnx: { image, gpus, ports: tritonPortsOf(ports[0]!) },
      tritonTrt: { image, gpus, ports: tritonPortsOf(ports[1]!) },
    });
    expect(await gpusOf("single-gpu-triton-onnx")).toEqual(one(uuids[0]!));
    expect(await gpusOf("single-gpu-triton-trt")).toEqual(one(uuids[0]!));
    expect(await project.plan("single-gpu")).toEqual([]);
  });

  test("four GPUs are requested with NVIDIA's runtime", async () => {
    await deploy("multi-gpu-4x", {
      host: host(4),
      embed: { image: builtImage(), port: ports[2] },
      tritonOnnx: { image, gpus: [0, 1, 2, 3], ports: tritonPortsOf(ports[0]! + 3) },
      tritonTrt: { image, gpus: [0, 1, 2, 3], ports: tritonPortsOf(ports[1]! + 3) },
    });
    for (const name of ["triton-onnx", "triton-trt"]) {
      expect(await gpusOf(`multi-gpu-4x-${name}`)).toEqual({
        runtime: "nvidia",
        requests: [],
        visible: ["NVIDIA_VISIBLE_DEVICES=0,1,2,3"],
      });
    }
    expect(await gpusOf("multi-gpu-4x-embed")).toEqual({
      runtime: "runc",
      requests: [],
      visible: [],
    });
    expect(await embedOnce(`http://127.0.0.1:${ports[2]}`, photo)).toHaveLength(512);
    expect(await project.plan("multi-gpu-4x")).toEqual([]);
  });

  test("four Triton servers with one GPU each replace them, and request one device each", async () => {
    await deploy("multi-gpu-4x", {
      topology: "per-gpu",
      host: host(4),
      embed: { image: builtImage(), port: ports[2] },
      perGpu: { image, gpus: [3, 1, 2, 0] },
    });
    const tritons = [0, 1, 2, 3].map((index) => `multi-gpu-4x-triton-${index}`);
    const running = await docker.lines("ps", "--format", "{{.Names}}");
    expect(running.filter((name) => name.startsWith("multi-gpu-4x-")).sort()).toEqual([
      "multi-gpu-4x-embed",
      ...tritons,
    ]);
    const asked = await Promise.all(tritons.map(gpusOf));
    expect(asked).toEqual(["3", "1", "2", "0"].map(one));
  });
});
