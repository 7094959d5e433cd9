import { Container } from "@cdktf/provider-docker/lib/container/index.js";
import { Volume } from "@cdktf/provider-docker/lib/volume/index.js";
import { Construct } from "constructs";
import { engineCacheMount } from "../inference-image/src/contract/model-config.ts";
import { hardened, serverUser } from "./container-defaults.ts";

export interface EngineCacheProps {
  /** Name of the container that the engines are for. */
  readonly container: string;
  /** Triton's image, by name: its version is part of the volume's name. */
  readonly image: string;
  /** The same image, by id: it runs `chown`, so that nothing else is pulled. */
  readonly imageId: string;
  /** CUDA compute capability of the GPU, `8.9`; part of the volume's name. */
  readonly computeCapability: string;
}

/**
 * A volume for TensorRT engines. It outlives the container, so that a new one starts in seconds and not in the minutes
 * of a build. An engine runs only on the kind of GPU and with the Triton that built it: another one gets another volume.
 * It goes with the environment, since engines can be built again and a destroy should leave nothing.
 */
export class EngineCache extends Construct {
  readonly volume: Volume;
  /** Depend on it: before it has run, only root can write to the volume. */
  readonly owner: Container;

  constructor(scope: Construct, id: string, props: EngineCacheProps) {
    super(scope, id);

    const name = `${props.container}-engines-sm${props.computeCapability.replace(".", "")}-${versionOf(props.image)}`;
    this.volume = new Volume(this, "volume", { name });
    // Docker makes a new volume for root, and Triton is not root: hand it over, once.
    this.owner = new Container(this, "owner", {
      ...hardened,
      name: `${props.container}-engines-owner`,
      image: props.imageId,
      user: "0:0",
      capabilities: { add: ["CAP_CHOWN"], drop: ["ALL"] },
      entrypoint: ["chown"],
      command: [serverUser, engineCacheMount],
      networkMode: "none",
      restart: "no",
      mustRun: false,
      attach: true,
      volumes: [{ volumeName: this.volume.name, containerPath: engineCacheMount }],
    });
  }
}

/** Tag of an image, or the start of its digest. */
function versionOf(image: string): string {
  return /@sha256:([0-9a-f]{12})/.exec(image)?.[1] ?? /:([^:/]+)$/.exec(image)?.[1] ?? "unknown";
}
