import type { ImageSource } from "../constructs/docker/server-image.ts";
import type { TritonServerEngine } from "../constructs/docker/triton-server.ts";

/** Settings of a Triton as its construct wants them: what serves it is one choice there. */
export function tritonProps<
  Settings extends { readonly engine: TritonServerEngine["kind"]; readonly image: ImageSource },
>({ engine, image, ...others }: Settings) {
  const choice: TritonServerEngine =
    engine === "tritonserver" ? { kind: engine, image } : { kind: engine };
  return { ...others, engine: choice };
}
