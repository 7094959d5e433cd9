import { Construct } from "constructs";
import { Volume } from "#providers/docker/lib/volume/index.js";
import type { DownloadedFile } from "../models/downloaded-weights.ts";
import type { ServedTower } from "../models/served-towers.ts";
import { ofModel, weightsDiskMiB } from "../models/weights-file.ts";
import { nameInStack, objectName } from "../terraform/names.ts";
import type { GpuHost } from "./gpu-host.ts";
import { OneShot } from "./one-shot.ts";
import type { ServerImage } from "./server-image.ts";

interface DownloadOptions {
  readonly host: GpuHost;
  /** Embed image, which downloads and verifies the files. */
  readonly tools: ServerImage;
  /** Suffix of the names of the volume and the container. */
  readonly suffix: string;
  /** Name in the volume and source of each file, the weights first. Without a name, the weights have the default name; files without a source are skipped. */
  readonly files: readonly (readonly [
    name: string | undefined,
    file: DownloadedFile | undefined,
  ])[];
}

const mount = "/weights";

/** Adds a volume to `parent`, and for each file a container that downloads it there. */
export function downloadedTower(
  parent: Construct,
  tower: ServedTower,
  { host, tools, suffix, files }: DownloadOptions,
) {
  const scope = new Construct(parent, `download${suffix}`);
  const sha256 = files[0]?.[1]?.sha256 ?? "";
  const version = sha256.slice(0, 12);
  const miB = weightsDiskMiB(tower);
  host.require({ disk: [{ what: `weights${ofModel(tower)}`, miB }] });
  const { name: volumeName } = new Volume(scope, "volume", {
    provider: host.provider,
    name: `${objectName(parent)}${suffix}-${version}`,
    lifecycle: { createBeforeDestroy: true },
  });
  const [first] = files.flatMap(([name, file], index) => {
    if (file === undefined) return [];
    const command = [
      ...["fetch-weights", "--folder", mount, "--url", file.url, "--sha256", file.sha256],
      ...["--max-bytes", `${2 * miB * 2 ** 20}`],
      ...(name === undefined ? [] : ["--file", name]),
    ];
    return new OneShot(scope, `file-${index}`, {
      host,
      image: tools,
      service: `${nameInStack(parent)}${suffix}-${index}`,
      run: {
        command,
        ...(host.proxy !== undefined && {
          env: [`HTTP_PROXY=${host.proxy}`, `HTTPS_PROXY=${host.proxy}`],
        }),
        volumes: [{ volumeName, containerPath: mount }],
      },
      versions: [],
    }).container;
  });
  return { tower, sha256, version, mount: { volumeName }, filledBy: first };
}
