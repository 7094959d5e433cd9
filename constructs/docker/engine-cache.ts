import { Construct } from "constructs";
import { Volume } from "#providers/docker/lib/volume/index.js";
import { engineCacheMount } from "../../contract/model-config.ts";
import type { GpuHost } from "./gpu-host.ts";
import { giveToServerUser } from "./one-shot.ts";
import type { ServerImage } from "./server-image.ts";

export interface EngineCacheProps {
  readonly host: GpuHost;
  /** Name of the Triton container. */
  readonly container: string;
  /** Name of its service. */
  readonly service: string;
  /** Number of models with an engine. */
  readonly models: number;
  /** Triton image. Its version is part of the volume's name. */
  readonly image: ServerImage;
  /** Embed image, in which `chown` runs. */
  readonly tools: ServerImage;
}

/** Disk space of the engines of a model and a timing cache, in MiB. */
const enginesMiB = 512;

/**
 * Volume of compiled TensorRT engines. It outlives the container, so that a replacement starts in seconds instead of
 * minutes. An engine runs only on the GPU architecture and Triton version that built it; others get another volume.
 * Destroying the environment removes the volume, because engines can be rebuilt.
 */
export class EngineCache extends Construct {
  readonly volume: Volume;

  constructor(scope: Construct, id: string, props: EngineCacheProps) {
    super(scope, id);

    const { host, container, service, models, image, tools } = props;
    const architecture = `sm${host.gpu.computeCapability.replace(".", "")}`;
    this.volume = new Volume(this, "volume", {
      name: `${container}-engines-${architecture}-${image.version}`,
      lifecycle: { createBeforeDestroy: true },
      provider: host.provider,
    });
    host.require({ disk: [{ what: `TensorRT engines of ${service}`, miB: models * enginesMiB }] });
    giveToServerUser(this, {
      host,
      image: tools,
      service: `${service}-engines`,
      volumeName: this.volume.name,
      mount: engineCacheMount,
      versions: [image.version],
    });
  }
}
