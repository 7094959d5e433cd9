import { createHash } from "node:crypto";
import type { ContainerVolumes } from "@cdktf/provider-docker/lib/container/index.js";
import { Volume } from "@cdktf/provider-docker/lib/volume/index.js";
import { Construct } from "constructs";
import type { ModelVariant } from "../../contract/model-config.ts";
import type { ModelName } from "../../contract/model-signature.ts";
import { modelRepositoryMount } from "../../contract/server-env.ts";
import { modelControlKeyVariable } from "../../contract/triton-flags.ts";
import { expression } from "../expression.ts";
import type { GpuHost } from "./gpu-host.ts";
import { OneShot } from "./one-shot.ts";
import type { ServerImage } from "./server-image.ts";

export interface ModelConfigurationProps {
  readonly host: GpuHost;
  /** The embed image: it puts the text in its place. */
  readonly tools: ServerImage;
  /** Name of the Triton's container. */
  readonly server: string;
  readonly service: string;
  readonly model: ModelName;
  readonly variant: ModelVariant;
  /** `config.pbtxt`. Expressions of Terraform in it have a value when a plan is made. */
  readonly text: string;
  /** Expressions in `text`. */
  readonly versions: readonly string[];
  /** A Triton that runs loads it at once, at this address of the environment's network. */
  readonly reload?: {
    readonly url: string;
    readonly timeoutSeconds: number;
    /** Key of its model control API; absent if that is open. */
    readonly key?: string;
    /** What the container is replaced with: one that has another of them is not asked. */
    readonly startedWith: readonly string[];
  };
}

const mountInTools = "/configs";
const uploaded = "/model-config.pbtxt";

/** The configuration of a model, as text on a volume that Triton reads. */
export class ModelConfiguration extends Construct {
  /** Names the text: another text has another. */
  readonly version: string;
  /** Where Triton reads it. */
  readonly mount: ContainerVolumes;

  constructor(scope: Construct, id: string, props: ModelConfigurationProps) {
    super(scope, id);

    const { host, tools, server, service, model, variant, text, versions, reload } = props;
    const hash = createHash("sha256").update(text).digest("hex").slice(0, 12);
    this.version =
      versions.length === 0
        ? hash
        : expression(`substr(sha256("${[hash, ...versions].join(" ")}"), 0, 12)`);
    const volume = new Volume(this, "volume", { name: `${server}-config` });
    new OneShot(this, "apply", {
      host,
      image: tools,
      service: `${service}-config`,
      run: {
        command: [
          "apply-config",
          ...["--folder", mountInTools],
          ...["--file", uploaded],
          ...["--name", variant],
          ...["--model", model],
          ...(reload === undefined ? [] : reloadArguments(reload)),
        ],
        ...(reload === undefined
          ? { networkMode: "none" }
          : { networksAdvanced: [{ name: host.network.name }] }),
        ...(reload?.key !== undefined && { env: [`${modelControlKeyVariable}=${reload.key}`] }),
        volumes: [{ volumeName: volume.name, containerPath: mountInTools }],
        upload: [{ file: uploaded, content: text }],
      },
      versions: [...versions, ...(reload?.startedWith ?? [])],
    });
    this.mount = {
      volumeName: volume.name,
      containerPath: `${modelRepositoryMount}/${model}/configs`,
      readOnly: true,
    };
  }
}

function reloadArguments({
  url,
  timeoutSeconds,
  startedWith,
}: NonNullable<ModelConfigurationProps["reload"]>): readonly string[] {
  const generation = expression(`substr(sha256("${startedWith.join(" ")}"), 0, 12)`);
  return [
    ...["--server", url],
    ...["--generation", generation],
    ...["--timeout-seconds", String(timeoutSeconds)],
  ];
}
