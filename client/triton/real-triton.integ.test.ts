import { afterAll, beforeAll, describe } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { type TritonModel, tritonModel } from "../../contract/triton-models.ts";
import { fullTestRepository, type TestRepository } from "../../emulator/test-repository.ts";
import { openGrpcTransport } from "./grpc-transport.ts";
import { openHttpTransport } from "./http-transport.ts";
import { type RealTriton, realTritonMissing, startRealTriton } from "./test-real-triton.ts";
import { describeTransport } from "./transport.suite.ts";

const fp32Model = tritonModel(defaultModel, "fp32");
const jpegModel = tritonModel(defaultModel, "jpeg");
const u8Model = tritonModel(defaultModel, "u8");

/** Address of an existing `tritonserver` with `model_repository/`: `http://host:port` and `host:port`. */
const { CLIPSTACK_TRITON_HTTP = "", CLIPSTACK_TRITON_GRPC = "" } = process.env;
const isExternal = CLIPSTACK_TRITON_HTTP !== "" && CLIPSTACK_TRITON_GRPC !== "";
const missing = isExternal ? "" : realTritonMissing;

const models: readonly TritonModel[] = [fp32Model, u8Model, jpegModel];

describe.skipIf(missing !== "")(
  `against a real Triton server${missing === "" ? "" : ` (skipped: ${missing})`}`,
  () => {
    let repository: TestRepository | undefined;
    let triton: RealTriton | undefined;
    let url = CLIPSTACK_TRITON_HTTP;
    let target = CLIPSTACK_TRITON_GRPC;
    beforeAll(async () => {
      if (isExternal) return;
      repository = await fullTestRepository();
      triton = await startRealTriton(repository.path);
      url = triton.url;
      target = triton.grpcTarget;
    });
    afterAll(async () => {
      await triton?.stop();
      await repository?.remove();
    });

    for (const model of models) {
      // JSON cannot represent bytes that are not text
      const isFile = model.inputs[0]?.dataType === "BYTES";
      for (const encoding of isFile ? (["binary"] as const) : (["binary", "json"] as const)) {
        const at = (port: number) =>
          openHttpTransport({ url: `http://127.0.0.1:${port}`, encoding });
        describeTransport({
          name: `${model.name}, HTTP, ${encoding}`,
          model,
          open: () => openHttpTransport({ url, encoding }),
          openSilent: at,
          openUnreachable: at,
        });
      }
      const at = (port: number) => openGrpcTransport({ target: `127.0.0.1:${port}` });
      describeTransport({
        name: `${model.name}, gRPC`,
        model,
        open: () => openGrpcTransport({ target }),
        openSilent: at,
        openUnreachable: at,
      });
    }
  },
);
