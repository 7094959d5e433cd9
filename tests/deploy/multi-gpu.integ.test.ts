import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts, isPortInUse } from "../../artefact/free-ports.ts";
import { startClipstack } from "../../cli/test-programs.ts";
import { perGpuHostPorts } from "../../contract/ports.ts";
import { testCertificate } from "../../http/test-certificate.ts";
import { hostDrillNames, parseDrillRecord } from "../../verify/drills/drill-record.ts";
import { testDocker } from "./test-docker.ts";
import { embedOnce, keepSending, until } from "./test-load.ts";
import { builtImage, type TestProject, testProject } from "./test-project.ts";

/** Four Triton servers behind a gateway, on the CPU with the tiny model: one container per declared GPU. */

const { docker, missing: noEngine } = await testDocker();
const perGpuPorts = [0, 1, 2, 3].flatMap((index) => Object.values(perGpuHostPorts(index)));
const portsInUse = await Promise.all(perGpuPorts.map((port) => isPortInUse(port)));
const missing =
  noEngine || (portsInUse.includes(true) ? "ports 8010 to 8042 are not all free" : "");
const photo = await readFile(
  fileURLToPath(new URL("../../model-tools/samples/dunes.jpg", import.meta.url)),
);

describe.skipIf(missing !== "")(
  `multi-gpu-4x, deployed${missing && ` (skipped: ${missing})`}`,
  () => {
    let project: TestProject;
    let before: readonly string[];
    let port: number;
    let url: string;

    const perGpu = (
      perGpu: Readonly<Record<string, unknown>>,
      embed: Readonly<Record<string, unknown>> = {},
    ) =>
      project.settings("multi-gpu-4x", {
        accelerator: "cpu",
        host: { docker: docker.endpoint },
        network: "clipstack-test-multi-gpu",
        embed: { port, image: builtImage(), ...embed },
        topology: "per-gpu",
        perGpu: { server: "emulator", ...perGpu },
      });
    const tritons = [0, 1, 2, 3].map((index) => `multi-gpu-4x-triton-${index}`);
    const startedAt = () =>
      Promise.all(
        ["multi-gpu-4x-embed", ...tritons].map(
          async (name) => (await docker.inspect(name)).State.StartedAt,
        ),
      );
    /** Deploys under load from `clients` with one request in flight each. */
    const deployUnderLoad = async (clients: number) => {
      const load = keepSending(() => embedOnce(url, photo).then(() => {}), clients);
      try {
        await load.more(20);
        const { code, output } = await project.deploy("multi-gpu-4x");
        expect(code, output).toBe(0);
        await load.more(20);
      } finally {
        await load.stop();
      }
      return load;
    };

    beforeAll(async () => {
      before = await docker.contents();
      project = await testProject({ docker });
      [port = 0] = await freePorts(1);
      url = `http://127.0.0.1:${port}`;
    });
    afterAll(() => project?.remove());

    test("deploys one Triton server per GPU behind the gateway", async () => {
      await perGpu({});
      const { code, output } = await project.deploy("multi-gpu-4x");
      expect(code, output).toBe(0);
      const { services } = await project.output("multi-gpu-4x");
      expect(services.map(({ name }) => `multi-gpu-4x-${name}`)).toEqual([
        "multi-gpu-4x-embed",
        ...tritons,
      ]);
      expect(await embedOnce(url, photo)).toHaveLength(512);
    });

    test("verify passes", async () => {
      const { code, output } = await project.clipstack(
        ...["verify", "multi-gpu-4x", "--target", "deployed", "--seconds", "1"],
        ...["--report", join(project.folder, "reports")],
      );
      expect(code, output).toBe(0);
    });

    test("a drill requires confirmation", async () => {
      const before = await startedAt();
      const { code, output } = await project.clipstack("drill", "multi-gpu-4x", "kill");
      expect(output.trim().split("\n").at(-1)).toBe(
        "clipstack: --yes must be given without a terminal, because a drill disturbs a running deployment",
      );
      expect(code).toBe(2);
      expect(await startedAt()).toEqual(before);
    });

    test.each(hostDrillNames.filter((name) => name !== "certificate"))(
      "the drill %s loses no request and restores the environment",
      async (name) => {
        const output = join(project.folder, `${name}.json`);
        const { code, output: printed } = await project.clipstack(
          ...["drill", "multi-gpu-4x", name, "--service", "triton-2", "--yes"],
          ...["--rate", "20", "--seconds", "3", "--output", output],
          ...["--report", join(project.folder, "reports")],
        );
        expect(code, printed).toBe(0);
        const { load } = parseDrillRecord(await readFile(output, "utf8"), output);
        expect(load?.phases.map(({ failed }) => failed)).toEqual([0, 0, 0]);
      },
    );

    test("an interrupted drill restores the environment", async () => {
      const { child, done } = startClipstack(["drill", "multi-gpu-4x", "freeze", "--yes"], {
        CDKTF_OUTDIR: join(project.folder, "cdktf.out"),
      });
      const isPaused = async () =>
        (await docker.inspect("multi-gpu-4x-triton-0")).State.Status === "paused";
      await until(async () => child.exitCode !== null || (await isPaused()));
      child.kill("SIGINT");
      const { code, stderr } = await done;
      expect(code, stderr).toBe(130);
      expect(stderr).toContain("clipstack: interrupted; the environment is restored");
      expect((await docker.inspect("multi-gpu-4x-triton-0")).State.Status).toBe("running");
    });

    test("drills leave nothing to change", async () => {
      expect(await project.plan("multi-gpu-4x")).toEqual([]);
    });

    test("a changed queue delay is loaded without restarts or lost requests", async () => {
      const before = await startedAt();
      await perGpu({ maxQueueDelayMicroseconds: 2_000 });
      expect((await deployUnderLoad(2)).lost).toEqual([]);
      expect(await startedAt()).toEqual(before);
    });

    test("a changed command line replaces the four one at a time without lost requests", async () => {
      const [gateway, ...before] = await startedAt();
      await perGpu({ maxQueueDelayMicroseconds: 2_000, modelControl: "none" });
      expect((await deployUnderLoad(2)).lost).toEqual([]);
      const [sameGateway, ...after] = await startedAt();
      expect(sameGateway).toBe(gateway);
      for (const [index, at] of after.entries()) expect(at).not.toBe(before[index]);
      expect([...after].sort()).toEqual(after);
      expect(await project.plan("multi-gpu-4x")).toEqual([]);
    });

    test("an expired certificate is served and shown by a metric, also after a killed drill", async () => {
      const tls = join(project.folder, "tls");
      const [certificate, key] = [join(tls, "cert.pem"), join(tls, "key.pem")];
      await mkdir(tls);
      const pair = testCertificate();
      await writeFile(certificate, pair.cert);
      await writeFile(key, pair.key);
      await perGpu(
        { maxQueueDelayMicroseconds: 2_000, modelControl: "none" },
        { tls: { certificate, key } },
      );
      const deployed = await project.deploy("multi-gpu-4x");
      expect(deployed.code, deployed.output).toBe(0);
      // as a killed drill leaves them
      const killed = testCertificate();
      for (const [file, valid, expired] of [
        [certificate, pair.cert, killed.cert],
        [key, pair.key, killed.key],
      ] as const) {
        await writeFile(`${file}.clipstack-drill`, valid);
        await writeFile(file, expired);
      }
      const { code, output } = await project.clipstack(
        ...["drill", "multi-gpu-4x", "certificate", "--seconds", "3", "--yes"],
        ...["--report", join(project.folder, "reports")],
      );
      expect(code, output).toBe(0);
      expect(await readFile(certificate, "utf8")).toBe(pair.cert);
      expect(await readdir(tls)).toEqual(["cert.pem", "key.pem"]);
    });

    test("destroy leaves no container, network, volume or image", async () => {
      const { code, output } = await project.destroy("multi-gpu-4x");
      expect(code, output).toBe(0);
      expect(await docker.contents()).toEqual(before);
    });
  },
);
