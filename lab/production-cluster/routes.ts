import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { Client, credentials } from "@grpc/grpc-js";
import type { HelmRelease } from "../../artefact/helm-template.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { trialImages } from "../trials/trial-images.ts";
import { helm, hosts, type LabCluster, run } from "./cluster.ts";

/** Requests through the Ingress and the GRPCRoute of the chart. */

const { width } = defaultModel.embedding;

/** Listener with TLS of the Gateway in components.yaml. */
export const parentRefs = [{ name: "public", namespace: "gateway", sectionName: "https" }];

/** Sends images through the Ingress of the chart. */
export async function throughIngress(
  { port, folder }: LabCluster,
  apiKey: string,
): Promise<string> {
  const image = join(folder, "image.jpg");
  await writeFile(image, trialImages()[0]?.bytes ?? "");
  const address = `--cacert ${folder}/ca.crt --resolve ${hosts.ingress}:${port}:127.0.0.1`;
  const request = `--data-binary @${image} -H content-type:image/jpeg --oauth2-bearer ${apiKey}`;
  const curl = `curl -sS --fail ${address} ${request} https://${hosts.ingress}:${port}/embed`;
  for (let sent = 0; sent < 20; sent += 1) {
    const [embedding] = JSON.parse(await run(curl)).embeddings;
    if (embedding.length !== width)
      throw new Error(`expected ${width} numbers, got ${embedding.length}`);
  }
  return "20 of 20 images embedded";
}

interface Access {
  readonly cluster: LabCluster;
  /** Certificate of the test authority. */
  readonly ca: string;
  readonly signal: AbortSignal;
}

/**
 * Calls Triton through the GRPCRoute of the chart. The chart rejects one with weights in the image, so the route and the policies are
 * rendered with others.
 */
export async function throughGrpcRoute(
  { cluster, ca, signal }: Access,
  release: HelmRelease,
  namespace: string,
): Promise<string> {
  const files =
    "--show-only templates/gateway-routes.yaml --show-only templates/network-policies.yaml";
  const objects = await helm(cluster, `template clipstack -n ${namespace} ${files}`, release, {
    grpcRoute: { enabled: true, parentRefs, hostnames: [hosts.grpc] },
    model: { weights: "pvc", pvc: { claimName: "none" } },
    triton: { allowUnauthenticated: true },
  });
  await cluster.kubectl(`apply -n ${namespace} --filename -`, objects);
  const client = new Client(`127.0.0.1:${cluster.port}`, credentials.createSsl(Buffer.from(ca)), {
    "grpc.ssl_target_name_override": hosts.grpc,
    "grpc.default_authority": hosts.grpc,
  });
  const call = promisify((method: string, done: (error: Error | null, answer?: Buffer) => void) =>
    client.makeUnaryRequest(
      `/inference.GRPCInferenceService/${method}`,
      (bytes: Buffer) => bytes,
      (bytes: Buffer) => bytes,
      Buffer.alloc(0),
      { deadline: Date.now() + 5_000 },
      done,
    ),
  );
  try {
    for (let tries = 1; ; tries += 1) {
      const answer = await call("ServerReady").catch((error: unknown) => error);
      // field 1, `ready`: true
      if (answer instanceof Buffer && answer.equals(Buffer.from([8, 1])))
        return "ServerReady: true";
      if (tries === 30) throw new Error(`ServerReady: ${answer}`);
      await sleep(1_000, undefined, { signal });
    }
  } finally {
    client.close();
  }
}
