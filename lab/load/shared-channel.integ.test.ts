import { expect, onTestFinished, test } from "vitest";
import { realTritonMissing } from "../../client/triton/test-real-triton.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { type ChannelsOption, withChannels } from "../../target/load/channels.ts";
import { measureLoad } from "../../target/load/measure-load.ts";
import { prepareRequests } from "../../target/requests/prepare.ts";
import { startLinkProxy } from "./link-proxy.ts";
import { startSleepingTriton } from "./test-sleeping-triton.ts";

/** Link that 41.5 float32 images per second fill. */
const link = { bandwidthMbps: 200, roundTripMs: 24 };
const tensor = new Float32Array(3 * 224 * 224);

/** Images per second of 16 clients behind the link, with a model that takes 2 ms. */
async function rateBehindLink(
  { endpoint, url }: { readonly endpoint: "onnx-http" | "onnx-grpc"; readonly url: string },
  channels: ChannelsOption,
): Promise<number> {
  const { hostname: host, port } = new URL(url.includes("://") ? url : `grpc://${url}`);
  const proxy = await startLinkProxy({ host, port: Number(port) }, link);
  try {
    const requests = await prepareRequests(
      {
        endpoint,
        url: `${endpoint === "onnx-http" ? "http://" : ""}127.0.0.1:${proxy.port}`,
        model: tritonModelName(defaultModel, "fp32"),
        spec: defaultModel,
      },
      { payload: "fp32", serialization: "binary" },
      [{ bytes: new Uint8Array(1), contentType: "image/jpeg", tensor }],
      1,
    );
    const { requestsPerSecond, errors } = await measureLoad(requests, {
      load: withChannels({ kind: "closed loop", concurrency: 16 }, channels),
      windowSeconds: 1,
      windows: 3,
      durationSeconds: 60,
      workers: 1,
      signal: new AbortController().signal,
    });
    expect(errors).toEqual({});
    console.log(`${endpoint} ${channels}: ${requestsPerSecond.toFixed(1)} images/s`);
    return requestsPerSecond;
  } finally {
    await proxy.close();
  }
}

test.skipIf(realTritonMissing !== "")(
  `a real Triton server enlarges the flow-control window of a shared channel until it fills the link${realTritonMissing === "" ? "" : ` (not here: ${realTritonMissing})`}`,
  async () => {
    const triton = await startSleepingTriton(2);
    onTestFinished(() => triton.stop());
    const http = await rateBehindLink({ endpoint: "onnx-http", url: triton.url }, "each");
    const grpc = { endpoint: "onnx-grpc", url: triton.grpcTarget } as const;
    // a fixed window of 64 KiB allows 4.5 images per second
    for (const channels of ["each", "shared"] as const) {
      expect(await rateBehindLink(grpc, channels)).toBeGreaterThan(0.3 * http);
    }
  },
);
