import { z } from "zod";
import { text } from "../../contract/value-types.ts";

export { port } from "../../constructs/checks/prop-types.ts";
export { integer, oneOf, text } from "../../contract/value-types.ts";

/** Types of single settings: each error message is `must …`. */

export const image = text("an image name like 'name:1.2' or 'name@sha256:…'", /^[\w./:@-]+$/);

export const path = text("a path without '..' or spaces", /^(?!.*\.\.)[\w~@+=,./-]+$/);

export const hostFile = text(
  "the absolute path of a file on the host, without '..' or spaces",
  /^(?!.*\.\.)\/[\w@+=,./-]*[\w@+=,.-]$/,
);

export const projectPath = text(
  "a path relative to the project, without '..' or spaces",
  /^(?![/~])(?!.*\.\.)[\w~@+=,./-]+$/,
);

/** Name of a Docker network, a kind cluster or a namespace. */
export const name = text(
  "lower-case letters, digits and '-', at most 40",
  /^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$/,
);

export const url = text(
  "a URL without a user or a password",
  /^https?:\/\/[^\s/@?#]+(\/[^\s@]*)?$/,
);

/** Download URL. The query of a signed URL is a secret, which would be stored in Terraform's state. */
export const downloadUrl = text(
  "a URL without a user, a password or a query",
  /^https?:\/\/[^\s/@?#]+(\/[^\s@?#]*)?$/,
);
export const sha256 = text("64 hexadecimal digits", /^[0-9a-f]{64}$/).describe(
  "SHA-256 of the weights (`model.onnx`).",
);

/** Name of a tower: `dinov2-small:image`. */
export const towerName = text(
  "a tower's name, like 'dinov2-small:image'",
  /^[a-z][a-z0-9-]*:(image|text)$/,
);

export const downloadedFile = z.strictObject({ url: downloadUrl, sha256 });

/** Files of a tower by URL. */
export const towerDownload = {
  ...downloadedFile.shape,
  tokenizer: downloadedFile.optional(),
};
