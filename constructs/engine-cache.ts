import { Container } from "@cdktf/provider-docker/lib/container/index.js";
import { Volume } from "@cdktf/provider-docker/lib/volume/index.js";
import { Construct } from "constructs";
import { hardened, serverUser } from "./container-defaults.ts";

/** Folder of a Triton container that TensorRT keeps its engines and timings in. */
export const engineCacheMount = "/engine-cache";

export interface EngineCacheProps {
  /** Name of the volume on the host. */
  readonly name: string;
  /** Image with `chown`: the id of Triton's own, so that nothing else is pulled. */
  readonly image: string;
}

/**
 * A volume for TensorRT engines. It outlives the container, so that a new one starts in seconds and not in the minutes
 * of a build. It goes with the environment: engines can be built again, and a destroy should leave nothing.
 */
export class EngineCache extends Construct {
  readonly volume: Volume;
  /** Depend on it: before it has run, only root can write to the volume. */
  readonly owner: Container;

  constructor(scope: Construct, id: string, props: EngineCacheProps) {
    super(scope, id);

    this.volume = new Volume(this, "volume", { name: props.name });
    // Docker makes a new volume for root, and Triton is not root: hand it over, once.
    this.owner = new Container(this, "owner", {
      ...hardened,
      name: `${props.name}-owner`,
      image: props.image,
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
