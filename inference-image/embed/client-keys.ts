import { createHash, timingSafeEqual } from "node:crypto";
import type { FastifyRequest } from "fastify";
import type { ClientKey } from "../../contract/server/client-keys.ts";
import { EmbedError } from "../../http/embed-error.ts";

interface Client extends Omit<ClientKey, "key"> {
  readonly digest: Buffer;
  readonly bucket: TokenBucket | undefined;
}

/** Keys that a server accepts, each with its client's name and rate limit. */
export class ClientKeys {
  #clients: readonly Client[] = [];
  readonly #names = new WeakMap<FastifyRequest, string>();

  constructor(keys: readonly ClientKey[]) {
    this.replace(keys);
  }

  /** Replaces the keys for new requests. A client whose limits stay the same keeps the state of its rate limit. */
  replace(keys: readonly ClientKey[]): void {
    const known = this.#clients;
    this.#clients = keys.map(({ key, ...client }) => {
      const { name, requestsPerSecond, burst } = client;
      const bucket = known.find(
        (it) =>
          it.name === name && it.requestsPerSecond === requestsPerSecond && it.burst === burst,
      )?.bucket;
      return { ...client, digest: digestOf(key), bucket: bucket ?? bucketOf(client) };
    });
  }

  /** @throws {EmbedError} `unauthorized` if the request has no `Authorization: Bearer` with one of the keys */
  authenticate(request: FastifyRequest): Client {
    const { authorization } = request.headers;
    const token = /^bearer +(\S+) *$/i.exec(authorization ?? "")?.[1];
    const digest = digestOf(token ?? "");
    // compares with every key, so that the time does not depend on which one matches
    const [client] = this.#clients.filter((it) => timingSafeEqual(it.digest, digest));
    if (client !== undefined && token !== undefined) {
      this.#names.set(request, client.name);
      return client;
    }
    const got = authorization === undefined ? "none" : "a different value";
    throw new EmbedError(
      "unauthorized",
      `the header must be 'Authorization: Bearer' and the key of this server, got ${got}`,
    );
  }

  /** @throws {EmbedError} `rate_limited` if the client exceeds its rate */
  limit({ name, requestsPerSecond, bucket }: Client): void {
    const seconds = bucket?.take() ?? 0;
    if (seconds === 0) return;
    throw new EmbedError(
      "rate_limited",
      `the client ${name} may send ${requestsPerSecond} requests per second`,
      { retryAfterSeconds: Math.ceil(seconds) },
    );
  }

  /** Name of the client that sent a request; undefined without a valid key. */
  nameOf(request: FastifyRequest): string | undefined {
    return this.#names.get(request);
  }
}

function bucketOf({ requestsPerSecond, burst }: Omit<ClientKey, "key">): TokenBucket | undefined {
  if (requestsPerSecond === undefined) return undefined;
  return new TokenBucket(requestsPerSecond, burst ?? Math.max(1, Math.floor(requestsPerSecond)));
}

/** Rate limit that accepts `burst` requests at once and `perSecond` on average. */
class TokenBucket {
  readonly #perSecond: number;
  readonly #burst: number;
  #tokens: number;
  #updatedAt = performance.now();

  constructor(perSecond: number, burst: number) {
    this.#perSecond = perSecond;
    this.#burst = burst;
    this.#tokens = burst;
  }

  /** Takes a token. Returns 0, or the time until the next token in seconds. */
  take(): number {
    const now = performance.now();
    const added = ((now - this.#updatedAt) / 1000) * this.#perSecond;
    this.#tokens = Math.min(this.#burst, this.#tokens + added);
    this.#updatedAt = now;
    if (this.#tokens < 1) return (1 - this.#tokens) / this.#perSecond;
    this.#tokens -= 1;
    return 0;
  }
}

/** Digest of equal length for all keys: a comparison reveals neither the key nor its length. */
function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
