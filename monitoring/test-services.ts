import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { defaultModel } from "../contract/models/index.ts";
import { createTritonEmulator } from "../emulator/index.ts";
import { startLoading } from "../inference-image/server/test-embed-server.ts";
import { ruleGroups } from "./alerts.ts";
import { startPrometheus } from "./test-prometheus.ts";

const photo = new URL("../model-tools/samples/dunes.jpg", import.meta.url);

/** Exposition of DCGM exporter on a host with two GPUs, written from its documentation and not recorded. */
export const dcgmPage = await readFile(new URL("dcgm-exporter.prom", import.meta.url), "utf8");

/** Rules of an environment with a price, a prediction and a budget. */
export const testRules = ruleGroups({
  selectors: { embed: 'job="embed"', triton: 'job="triton"', gpu: 'gpu!=""' },
  latencySeconds: 0.25,
  usdPerHour: 0.8,
  predictedImagesPerSecond: 500,
  budgetUsdPer1000Images: 0.01,
});

/** Gateway, Triton emulator and a page of DCGM exporter, with a Prometheus that scrapes them every second. */
export async function startMonitored() {
  const triton = await createTritonEmulator({ models: [defaultModel] });
  const gateway = {
    BACKEND: "triton",
    MODELS: defaultModel.name,
    TRITON_GRPC_URLS: triton.grpcAddress,
    TRITON_MODEL_KIND: "fp32",
  };
  const embed = await startLoading(gateway);
  const folder = await mkdtemp(join(tmpdir(), "clipstack-certificate-"));
  const files = { TLS_CERT_FILE: join(folder, "cert.pem"), TLS_KEY_FILE: join(folder, "key.pem") };
  execFileSync(
    "openssl",
    [
      ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"],
      ...["-subj", "/CN=localhost", "-days", "30"],
      ...["-out", files.TLS_CERT_FILE, "-keyout", files.TLS_KEY_FILE],
    ],
    { stdio: "pipe" },
  );
  const overTls = await startLoading({ ...gateway, ...files });
  const dcgm = createServer((_, response) => response.end(dcgmPage)).listen(0, "127.0.0.1");
  await once(dcgm, "listening");
  const job = (name: string, port: number) => ({
    job_name: name,
    static_configs: [{ targets: [`127.0.0.1:${port}`] }],
  });
  const prometheus = await startPrometheus(
    {
      global: { scrape_interval: "1s", evaluation_interval: "1s" },
      scrape_configs: [
        job("embed", embed.port),
        {
          job_name: "embed over TLS",
          scheme: "https",
          tls_config: { insecure_skip_verify: true },
          static_configs: [{ targets: [`127.0.0.1:${overTls.port}`], labels: { job: "embed" } }],
        },
        job("triton", Number(new URL(triton.metricsUrl).port)),
        job("dcgm", (dcgm.address() as AddressInfo).port),
      ],
    },
    { "rules.yml": testRules },
  );
  const url = `http://127.0.0.1:${embed.port}`;
  const startedAt = performance.now();
  while ((await fetch(`${url}/readyz`)).status !== 200) {
    if (performance.now() - startedAt > 60_000) throw new Error("the gateway is not ready");
    await sleep(50);
  }
  return {
    prometheus,
    url,
    /** Sends images, texts and one request that is not accepted, for some seconds. */
    async load(seconds: number): Promise<void> {
      const jpeg = await readFile(photo);
      const post = (path: string, type: string, body: string | Uint8Array<ArrayBuffer>) =>
        fetch(`${url}${path}`, { method: "POST", headers: { "content-type": type }, body });
      const end = performance.now() + seconds * 1000;
      await post("/embed", "text/plain", "no image");
      while (performance.now() < end) {
        await Promise.all([
          ...[1, 2, 3, 4].map(() => post("/embed", "image/jpeg", new Uint8Array(jpeg))),
          post("/embed/text", "application/json", JSON.stringify({ texts: ["dunes"] })),
        ]);
        await sleep(50);
      }
    },
    async stop(): Promise<void> {
      await prometheus.stop();
      await embed.stop();
      await overTls.stop();
      await rm(folder, { recursive: true });
      await triton.close();
      dcgm.close();
    },
  };
}
