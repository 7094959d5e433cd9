import { z } from "zod";
import { integer, text } from "../../contract/value-types.ts";

/** Schemas of single props, which the settings share. */

export const port = integer(1, 65_535);

/** Docker endpoint of a host. */
export const dockerEndpoint = text(
  "'ssh://[user@]host[:port]' or 'unix:///path'",
  /^(ssh:\/\/([\w.-]+@)?([\w.-]+|\[[\da-f:.]+\])(:[1-9]\d{0,4})?|unix:\/\/\/[\w./-]+)$/i,
).refine(URL.canParse, "must have a valid host and a port of at most 65535");

export const migProfile = text("a MIG profile like '1g.10gb'", /^\d+g\.\d+gb(\+\w+)?$/);

const gpuUuid = text(
  "an index or a UUID like 'GPU-8a56a4bc-184b-a047-2620-be16fdbd5b46' or 'MIG-…'",
  /^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
);
export const gpuId = z.union([integer(0, 63), gpuUuid]);

export const accelerator = z.enum(["gpu", "cpu"]);

export const exposure = z.enum(["loopback", "all-interfaces"]);

/** Memory limit of a container. */
export const memoryLimitMiB = integer(256, 4_194_304);
