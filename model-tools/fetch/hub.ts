import type { HubWeights } from "../../contract/models/trained-weights.ts";
import { UserError } from "../../contract/user-error.ts";
import type { Environment } from "./proxy-dispatcher.ts";

/** Hugging Face's hub, the default of `HF_ENDPOINT`. */
export const hub = "https://huggingface.co";

export interface HubSource {
  readonly url: URL;
  /** Bearer token for the origin of `url`. */
  readonly token?: string;
}

/**
 * Address of a file on the hub or its mirror, and the token for it.
 *
 * @param elsewhere - Variable with the complete URL of the same file in another store, if it may be set.
 */
export function hubSource(
  { repository, revision }: Pick<HubWeights, "repository" | "revision">,
  file: string,
  env: Environment,
  elsewhere?: string,
): HubSource {
  if (/^(1|on|yes|true)$/i.test(env.HF_HUB_OFFLINE ?? "")) {
    throw new UserError("HF_HUB_OFFLINE is set: downloads are disabled");
  }
  const base = httpUrl("HF_ENDPOINT", env.HF_ENDPOINT || hub);
  const own = elsewhere === undefined ? undefined : env[elsewhere];
  const path = `${repository}/resolve/${revision}/${file}`;
  const url = own ? httpUrl(elsewhere!, own) : new URL(path, `${base.href.replace(/\/*$/, "")}/`);
  const token = env.HF_TOKEN?.trim() || undefined;
  // never send a token unencrypted over a network
  const safe = url.protocol === "https:" || /^(127\.0\.0\.1|localhost|\[::1\])$/.test(url.hostname);
  if (token === undefined || url.origin !== base.origin || !safe) return { url };
  return { url, token };
}

/** Error without the value, which may contain a password. */
function httpUrl(name: string, value: string): URL {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new UserError(`${name} must be http://… or https://…`);
  }
  if (url.username !== "" || url.password !== "") {
    throw new UserError(`${name} must have no user and no password`);
  }
  return url;
}
