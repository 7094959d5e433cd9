import { describe } from "vitest";
import { openclipVitB32 } from "../contract/model-signature.ts";
import { openGrpcTransport } from "./grpc-transport.ts";
import { openHttpTransport } from "./http-transport.ts";
import { describeTransport } from "./transport.suite.ts";

/** A `tritonserver` that serves `openclip_vit_b32`: `http://host:port` and `host:port`. */
const { CLIPSTACK_TRITON_HTTP: url = "", CLIPSTACK_TRITON_GRPC: target = "" } = process.env;
const missing = url === "" || target === "";

describe.skipIf(missing)(
  `against a real Triton${missing ? " (not here: set CLIPSTACK_TRITON_HTTP and CLIPSTACK_TRITON_GRPC)" : ""}`,
  () => {
    for (const encoding of ["binary", "json"] as const) {
      const at = (port: number) => openHttpTransport({ url: `http://127.0.0.1:${port}`, encoding });
      describeTransport({
        name: `HTTP, ${encoding}`,
        model: openclipVitB32,
        open: () => openHttpTransport({ url, encoding }),
        openSilent: at,
        openUnreachable: at,
      });
    }
    const at = (port: number) => openGrpcTransport({ target: `127.0.0.1:${port}` });
    describeTransport({
      name: "gRPC",
      model: openclipVitB32,
      open: () => openGrpcTransport({ target }),
      openSilent: at,
      openUnreachable: at,
    });
  },
);
