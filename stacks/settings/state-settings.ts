import { z } from "zod";
import { oneOf, path, projectPath, text, url } from "./setting-types.ts";

const bucket = text("a bucket's name", /^[a-z0-9][\w.-]{1,61}[a-z0-9]$/);

/** Location of Terraform's state; its defaults, which contain the environment's name, are those of `keepState`. */
export const state = z
  .discriminatedUnion(
    "backend",
    [
      z.strictObject({ backend: z.literal("local"), path: projectPath.optional() }),
      z.strictObject({
        backend: z.literal("s3"),
        bucket,
        key: path.optional(),
        region: text("a region, like 'eu-central-1'", /^[a-z0-9-]+$/),
        endpoint: url.optional(),
      }),
      z.strictObject({ backend: z.literal("gcs"), bucket, prefix: path.optional() }),
      z
        .strictObject({
          backend: z.literal("http"),
          address: url,
          lockAddress: url.optional(),
          unlockAddress: url.optional(),
        })
        .refine(
          ({ lockAddress, unlockAddress }) =>
            (lockAddress === undefined) === (unlockAddress === undefined),
          "must have both lockAddress and unlockAddress, or neither",
        ),
    ],
    oneOf("backend", ["local", "s3", "gcs", "http"]),
  )
  .prefault({ backend: "local" })
  .describe(
    [
      "Location of Terraform's state: `{ backend: local, path }` (relative to the project, default `terraform.<environment>.tfstate`),",
      "`{ backend: s3, bucket, region, key, endpoint }` (key: default `clipstack/<environment>.tfstate`),",
      "`{ backend: gcs, bucket, prefix }` (prefix: default `clipstack/<environment>`) or",
      "`{ backend: http, address, lockAddress, unlockAddress }`. Credentials come from environment variables.",
    ].join(" "),
  );
