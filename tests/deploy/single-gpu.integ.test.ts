import { mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Agent } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { readBenchRecord } from "../../bench/record/bench-record.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import { serviceEndpoints } from "../../contract/environment.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { generateModel } from "../../model-tools/generate/generate.ts";
import { type PrometheusApi, prometheusApi } from "../../monitoring/test-prometheus.ts";
import { dashboardQueries, isNumber, runnable } from "../../monitoring/test-queries.ts";
import { issueCertificate } from "./test-certificate.ts";
import { testDocker } from "./test-docker.ts";
import { keptImage } from "./test-image.ts";
import {
  embedOnce,
  isReady,
  keepSending,
  restartGapMs,
  statusWithKey,
  watchReadiness,
} from "./test-load.ts";
import { builtImage, type TestProject, testProject, tritonPortsOf } from "./test-project.ts";

const fp32Name = tritonModelName(defaultModel, "fp32");
const input = {
  name: "image",
  dataType: "FP32",
  shape: [1, 3, 224, 224],
  data: new Float32Array(3 * 224 * 224).fill(0.1),
} as const;

/**
 * Life cycle of an environment on the CPU with the tiny model: deploy, verify, deploy again, change a setting, update everything,
 * destroy.
 */

const { docker, missing } = await testDocker();
const prometheusImage =
  missing === "" ? await keptImage(docker, "prometheus").catch(() => undefined) : undefined;
const photo = await readFile(
  fileURLToPath(new URL("../../model-tools/samples/dunes.jpg", import.meta.url)),
);

describe.skipIf(missing !== "")(
  `single-gpu, deployed${missing && ` (skipped: ${missing})`}`,
  () => {
    let project: TestProject;
    let before: readonly string[];
    let embedUrl: string;
    /** HTTP addresses of the Triton server that loads configurations without a restart and of the one that is replaced. */
    let onnxUrl: string;
    let trtUrl: string;

    let prometheus: PrometheusApi;
    const targets = async () => {
      const { activeTargets } = (await prometheus.get("targets")) as {
        activeTargets: readonly { scrapeUrl: string; health: string; lastError: string }[];
      };
      return activeTargets.map(({ scrapeUrl, health }) => `${scrapeUrl} ${health}`).sort();
    };

    /** Folder of the host with the certificate and the keys of clients. */
    let access: string;
    const keys = ["first-0123456789abcdef", "second-0123456789abcdef"] as const;

    const settings = async (
      delays: { readonly onnx: number; readonly trt: number },
      embed: Readonly<Record<string, unknown>> = {},
      keyFile?: string,
    ) => {
      const portOf = (url: string) => Number(new URL(url).port);
      await project.settings("single-gpu", {
        accelerator: "cpu",
        host: { docker: docker.endpoint },
        network: "clipstack-test-single-gpu",
        embed: { port: portOf(embedUrl), image: builtImage(), ...embed },
        tritonOnnx: {
          server: "emulator",
          maxQueueDelayMicroseconds: delays.onnx,
          ports: tritonPortsOf(portOf(onnxUrl)),
        },
        tritonTrt: {
          server: "emulator",
          modelControl: "none",
          maxQueueDelayMicroseconds: delays.trt,
          ports: tritonPortsOf(portOf(trtUrl)),
        },
        monitoring: {
          enabled: prometheusImage !== undefined,
          grafana: false,
          ports: { prometheus: portOf(prometheus.url) },
          images: { prometheus: prometheusImage },
          keyFile,
          predictedImagesPerSecond: 100,
        },
      });
    };

    beforeAll(async () => {
      before = await docker.contents();
      access = await mkdtemp(join(tmpdir(), "clipstack-access-"));
      await issueCertificate(access, ["IP:127.0.0.1"]);
      project = await testProject({
        docker,
        variables: {
          NODE_EXTRA_CA_CERTS: join(access, "ca.crt"),
          INFERENCE_API_KEY: keys[0],
        },
      });
      const [port, onnx, trt, monitoring] = await freePorts(4);
      prometheus = prometheusApi(`http://127.0.0.1:${monitoring}`);
      embedUrl = `http://127.0.0.1:${port}`;
      onnxUrl = `http://127.0.0.1:${onnx}`;
      trtUrl = `http://127.0.0.1:${trt}`;
      await settings({ onnx: 5_000, trt: 5_000 });
    });
    afterAll(async () => {
      await project?.remove();
      await rm(access, { recursive: true, force: true });
    });

    test("cdktf deploy builds the image, fills the volumes and succeeds once every service is ready", async () => {
      const { code, output } = await project.deploy("single-gpu");
      expect(code, output).toBe(0);
      expect(await isReady(`${embedUrl}/readyz`)).toBe(true);
      expect(await isReady(`${onnxUrl}/v2/health/ready`)).toBe(true);
      expect(await isReady(`${trtUrl}/v2/health/ready`)).toBe(true);
      expect(await embedOnce(embedUrl, photo)).toHaveLength(512);
    });

    test("verify passes", async () => {
      const { code, output } = await project.clipstack(
        ...["verify", "single-gpu", "--target", "deployed", "--seconds", "1"],
        ...["--report", join(project.folder, "reports")],
      );
      expect(code, output).toBe(0);
    });

    test("bench measures every endpoint and changes nothing", async () => {
      const output = join(project.folder, "bench.json");
      const { code, output: printed } = await project.clipstack(
        ...["bench", "single-gpu", "--target", "deployed"],
        ...["--batch-sizes", "1", "--concurrency", "2", "--window", "0.5", "--duration", "4"],
        ...["--rounds", "2", "--report", join(project.folder, "reports"), "--output", output],
      );
      expect(code, printed).toBe(0);
      const { subject, parity, loadPoints } = readBenchRecord(output);
      expect(subject.target).toBe("deployed");
      expect(parity.map(({ passed }) => passed)).toEqual(parity.map(() => true));
      const expected = serviceEndpoints.filter((name) => name !== "pytorch-http");
      expect(loadPoints.map(({ endpoint }) => endpoint)).toEqual(expected);
      for (const point of loadPoints) {
        expect(point.samples, point.id).toBeGreaterThan(0);
        expect(point.server?.requests, point.id).toBeGreaterThan(0);
      }
    });

    test.skipIf(prometheusImage === undefined)(
      "Prometheus reads every service, evaluates every rule and answers the dashboards",
      async () => {
        await expect
          .poll(targets)
          .toEqual([
            "http://single-gpu-embed:8002/metrics up",
            "http://single-gpu-triton-onnx:8002/metrics up",
            "http://single-gpu-triton-trt:8002/metrics up",
          ]);
        // ONNX Runtime in the embed server: no upstreams, and no texts
        const queries = dashboardQueries().filter(
          ({ dashboard, expr }) =>
            dashboard !== "clipstack: GPUs" && !/embed_triton_|embed_texts/.test(expr),
        );
        expect(queries.length).toBeGreaterThan(40);
        const transport = openHttpTransport({ url: onnxUrl });
        await expect
          .poll(
            async () => {
              await embedOnce(embedUrl, photo);
              await transport.infer(fp32Name, [input], { timeoutMs: 60_000 });
              const data = await Promise.all(
                queries.map(({ expr }) => prometheus.query(runnable(expr, "1m"))),
              );
              return queries.filter((_, index) => !data[index]?.some(isNumber));
            },
            { timeout: 120_000, interval: 1_000 },
          )
          .toEqual([]);
        await transport.close();
        const states = async () => {
          const { groups } = (await prometheus.get("rules")) as {
            groups: readonly { rules: readonly { health: string }[] }[];
          };
          return groups.flatMap(({ rules }) => rules.map(({ health }) => health));
        };
        expect((await states()).length).toBeGreaterThan(15);
        await expect
          .poll(async () => new Set(await states()), { timeout: 60_000 })
          .toEqual(new Set(["ok"]));
      },
    );

    test("sweep changes the queue delay of the Triton server that requires a key and restores it", async () => {
      const output = join(project.folder, "sweep.json");
      const { code, output: printed } = await project.clipstack(
        ...["sweep", "queue-delay", "--environment", "single-gpu", "--target", "deployed"],
        ...["--backend", "onnx-http", "--queue-delay", "0", "--concurrency", "2"],
        ...["--window", "0.5", "--duration", "4"],
        ...["--report", join(project.folder, "reports"), "--output", output],
      );
      expect(code, printed).toBe(0);
      expect(readBenchRecord(output).loadPoints.map(({ conditions }) => conditions)).toEqual([
        { queueDelayUs: 0 },
      ]);
      expect(await queueDelay(onnxUrl, fp32Name)).toBe(5_000);
    });

    test("the model control API rejects requests without the key", async () => {
      const answer = await fetch(`${onnxUrl}/v2/repository/index`, { method: "POST" });
      expect(answer.status).toBe(403);
    });

    test("model deploy requires versions", async () => {
      const file = join(project.folder, "model_repository", fp32Name, "1", "model.onnx");
      const args = ["--file", file, "--environment", "single-gpu"];
      const { code, output } = await project.clipstack("model", "deploy", ...args);
      expect(output.trim().split("\n").at(-1)).toBe(
        `clipstack: single-gpu: was not deployed with modelVersions by this version, so that ${fp32Name} has no folders of versions; set tritonOnnx.modelVersions and deploy it again`,
      );
      expect(code).toBe(2);
    });

    test("a second deploy plans no change", async () => {
      expect(await project.plan("single-gpu")).toEqual([]);
    });

    test("a changed queue delay replaces the configuration, and the container only without model control", async () => {
      await settings({ onnx: 2_000, trt: 3_000 });
      expect(await project.plan("single-gpu")).toEqual([
        "create docker_container.triton-onnx_configuration_apply",
        "create docker_container.triton-trt_configuration_apply",
        "create, then delete terraform_data.host_prepared",
        "delete docker_container.triton-onnx_configuration_apply",
        "delete docker_container.triton-trt_configuration_apply",
        "replace docker_container.triton-trt",
        "replace terraform_data.triton-trt_ready_healthy",
      ]);
    });

    test("a changed queue delay loses no request", async () => {
      const transport = openHttpTransport({ url: onnxUrl });
      const load = keepSending(async () => {
        await transport.infer(fp32Name, [input], { timeoutMs: 60_000 });
      });
      const containers = ["single-gpu-embed", "single-gpu-triton-onnx", "single-gpu-triton-trt"];
      const inspect = () => Promise.all(containers.map((name) => docker.inspect(name)));
      const [embed, onnx, trt] = await inspect();
      try {
        await load.more(10);
        const { code, output } = await project.deploy("single-gpu");
        expect(code, output).toBe(0);
        await load.more(10);
      } finally {
        await load.stop();
        await transport.close();
      }
      expect(load.lost).toEqual([]);
      const [embedNow, onnxNow, trtNow] = await inspect();
      expect(embedNow?.State.StartedAt).toBe(embed?.State.StartedAt);
      expect(onnxNow?.State.StartedAt).toBe(onnx?.State.StartedAt);
      expect(trtNow?.Id).not.toBe(trt?.Id);
      expect(trtNow?.Image).toBe(trt?.Image);
      expect(await queueDelay(onnxUrl, fp32Name)).toBe(2_000);
      expect(await queueDelay(trtUrl, tritonModelName(defaultModel, "trt"))).toBe(3_000);
      expect(await project.plan("single-gpu")).toEqual([]);
    });

    test("serves HTTPS, and replaces a key under load without a failed request", async () => {
      const writeKeys = async (names: readonly (0 | 1)[]) => {
        const list = names.map((index) => ({ name: `client-${index}`, key: keys[index] }));
        await writeFile(join(access, "next.json"), JSON.stringify(list));
        await rename(join(access, "next.json"), join(access, "keys.json"));
      };
      await writeKeys([0]);
      await writeFile(join(access, "prometheus.key"), keys[1]);
      await settings(
        { onnx: 2_000, trt: 3_000 },
        {
          tls: { certificate: join(access, "tls.crt"), key: join(access, "tls.key") },
          keys: join(access, "keys.json"),
        },
        join(access, "prometheus.key"),
      );
      const deployed = await project.deploy("single-gpu");
      expect(deployed.code, deployed.output).toBe(0);
      const verified = await project.clipstack(
        ...["verify", "single-gpu", "--target", "deployed", "--seconds", "1"],
        ...["--report", join(project.folder, "reports")],
      );
      expect(verified.code, verified.output).toBe(0);

      const dispatcher = new Agent({ connect: { ca: await readFile(join(access, "ca.crt")) } });
      const url = embedUrl.replace("http:", "https:");
      const statusOf = (key: string) => statusWithKey(dispatcher, url, photo, key);
      let key: string = keys[0];
      const load = keepSending(async () => {
        const status = await statusOf(key);
        if (status !== 200) throw new Error(`status ${status}`);
      });
      try {
        await load.more(10);
        const scraped = (health: string) =>
          expect
            .poll(targets, { timeout: 60_000 })
            .toContain(`https://single-gpu-embed:8002/metrics ${health}`);
        const isMonitored = prometheusImage !== undefined;
        // its key is not accepted yet
        if (isMonitored) await scraped("down");
        await writeKeys([0, 1]);
        await expect.poll(() => statusOf(keys[1])).toBe(200);
        key = keys[1];
        // more than all requests in flight with the first key
        await load.more(10);
        if (isMonitored) await scraped("up");
        await writeKeys([1]);
        await expect.poll(() => statusOf(keys[0])).toBe(401);
        await load.more(10);
      } finally {
        await load.stop();
        await dispatcher.close();
      }
      expect(load.lost).toEqual([]);
      const inspected = JSON.stringify(await docker.inspect("single-gpu-embed"));
      const plan = JSON.stringify(await project.plan("single-gpu"));
      for (const secret of keys) expect(inspected + plan).not.toContain(secret);
      await settings({ onnx: 2_000, trt: 3_000 });
      const restored = await project.deploy("single-gpu");
      expect(restored.code, restored.output).toBe(0);
    });

    test("an update of image and weights has a downtime of one container start at most", async () => {
      const main = join(project.folder, "inference-image", "main.ts");
      await writeFile(
        main,
        `${await readFile(main, "utf8")}\nprocess.title = "another version";\n`,
      );
      const file = join(project.folder, "model_repository", fp32Name, "1", "model.onnx");
      await generateModel({ spec: defaultModel, profile: "tiny", seed: 2, file });
      const vector = await embedOnce(embedUrl, photo);
      const image = (await docker.inspect("single-gpu-embed")).Image;

      const ready = [
        `${embedUrl}/readyz`,
        `${onnxUrl}/v2/health/ready`,
        `${trtUrl}/v2/health/ready`,
      ];
      const watch = watchReadiness(ready);
      const { code, output } = await project.deploy("single-gpu");
      await watch.stop();
      expect(code, output).toBe(0);

      expect((await docker.inspect("single-gpu-embed")).Image).not.toBe(image);
      expect(await embedOnce(embedUrl, photo)).not.toEqual(vector);
      const restartMs = await restartGapMs(docker, {
        containers: ["embed", "triton-onnx", "triton-trt"].map((name) => `single-gpu-${name}`),
        ready,
      });
      expect(watch.longestGapOfAllMs()).toBeLessThan(3 * restartMs);
    });

    test("destroy leaves no container, network, volume or image", async () => {
      const { code, output } = await project.destroy("single-gpu");
      expect(code, output).toBe(0);
      expect(await docker.contents()).toEqual(before);
    });
  },
);

async function queueDelay(url: string, model: string): Promise<number> {
  const answer = await fetch(`${url}/v2/models/${model}/config`);
  const config = (await answer.json()) as {
    readonly dynamic_batching: { readonly max_queue_delay_microseconds: number | string };
  };
  return Number(config.dynamic_batching.max_queue_delay_microseconds);
}
