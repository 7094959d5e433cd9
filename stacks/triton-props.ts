import type { ImageSource } from "../constructs/docker/server-image.ts";
import type { TritonServerKind } from "../constructs/docker/triton-server.ts";

/** Settings of a Triton as its construct wants them: what serves it is one choice there. */
export function tritonProps<
  Settings extends { readonly server: TritonServerKind["kind"]; readonly image: ImageSource },
>({ server, image, ...others }: Settings) {
  const choice: TritonServerKind =
    server === "tritonserver" ? { kind: server, image } : { kind: server };
  return { ...others, server: choice };
}
