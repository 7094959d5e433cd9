import { Volume } from "@cdktf/provider-docker/lib/volume/index.js";
import { Construct } from "constructs";
import { engineCacheMount } from "../../contract/model-config.ts";
import { serverUser } from "./container-defaults.ts";
import type { GpuHost } from "./gpu-host.ts";
import { OneShot } from "./one-shot.ts";
import type { ServerImage } from "./server-image.ts";

export interface EngineCacheProps {
  readonly host: GpuHost;
  /** Name of the container that the engines are for. */
  readonly container: string;
  /** Name of its service. */
  readonly service: string;
  /** Its image: the version is part of the volume's name. */
  readonly image: ServerImage;
  /** The embed image: it runs `chown`. */
  readonly tools: ServerImage;
}

/** Room for the engines of a model and a timing cache, in MiB. */
const enginesMiB = 512;

/**
 * A volume for TensorRT engines. It outlives the container, so that a new one starts in seconds and not in the minutes
 * of a build. An engine runs only on the kind of GPU and with the Triton that built it: another one gets another volume.
 * It goes with the environment, since engines can be built again and a destroy should leave nothing.
 */
export class EngineCache extends Construct {
  readonly volume: Volume;

  constructor(scope: Construct, id: string, props: EngineCacheProps) {
    super(scope, id);

    const { host, container, service, image, tools } = props;
    const architecture = `sm${host.gpu.computeCapability.replace(".", "")}`;
    this.volume = new Volume(this, "volume", {
      name: `${container}-engines-${architecture}-${image.version}`,
      lifecycle: { createBeforeDestroy: true },
    });
    host.needsDisk({ what: `TensorRT engines of ${service}`, miB: enginesMiB });
    // Docker makes a new volume for root, and Triton is not root: hand it over, once.
    new OneShot(this, "owner", {
      host,
      image: tools,
      service: `${service}-engines`,
      run: {
        entrypoint: ["chown"],
        command: [serverUser, engineCacheMount],
        capabilities: { add: ["CAP_CHOWN"], drop: ["ALL"] },
        networkMode: "none",
        volumes: [{ volumeName: this.volume.name, containerPath: engineCacheMount }],
      },
      versions: [image.version],
    });
  }
}
