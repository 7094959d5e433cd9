import type { Readable } from "node:stream";
import {
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from "@aws-sdk/client-s3";
import { withRetries } from "./retry.ts";
import { type Store, StoreError, type StoreErrorCode } from "./store.ts";

export interface S3StoreOptions {
  readonly bucket: string;
  /** Without slashes at its ends. */
  readonly prefix: string;
  /** As in `openStore`. */
  readonly patienceSeconds: number;
}

/** Error of the SDK: `name` is the code of S3 or of a credential provider, `code` that of a connection. */
interface S3Error extends Error {
  readonly code?: string;
  readonly $metadata?: { readonly httpStatusCode?: number };
}

// a warning for developers, on Node 20
process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED ??= "true";

let sharedClient: S3Client | undefined;

/**
 * Client with the endpoint, region and credentials of the environment, as for every AWS SDK. Another endpoint than AWS's
 * needs no DNS name per bucket and no checksums beyond those of the protocol.
 */
function s3Client(): S3Client {
  const { AWS_ENDPOINT_URL_S3: endpoint = process.env.AWS_ENDPOINT_URL, AWS_REGION } = process.env;
  const isOther = endpoint !== undefined && endpoint !== "";
  sharedClient ??= new S3Client({
    region: AWS_REGION || process.env.AWS_DEFAULT_REGION || (isOther ? "us-east-1" : undefined),
    // retried below, for as long as configured
    maxAttempts: 1,
    requestHandler: {
      connectionTimeout: 5_000,
      requestTimeout: 60_000,
      throwOnRequestTimeout: true,
    },
    ...(isOther && {
      forcePathStyle: true,
      requestChecksumCalculation: "WHEN_REQUIRED" as const,
      responseChecksumValidation: "WHEN_REQUIRED" as const,
    }),
  });
  return sharedClient;
}

export function openS3Store({ bucket, prefix, patienceSeconds }: S3StoreOptions): Store {
  const client = s3Client();
  const address = prefix === "" ? `s3://${bucket}` : `s3://${bucket}/${prefix}`;
  const base = prefix === "" ? "" : `${prefix}/`;
  const at = (key: string) => ({ Bucket: bucket, Key: `${base}${key}` });

  async function send<T>(what: string, call: () => Promise<T>): Promise<T> {
    try {
      return await withRetries(call, isTransient, patienceSeconds);
    } catch (error) {
      throw storeErrorOf(error as S3Error, what);
    }
  }

  async function body(key: string, etag: string) {
    const IfMatch = etag === "" ? undefined : `"${etag}"`;
    const { Body } = await client.send(new GetObjectCommand({ ...at(key), IfMatch }));
    return Body!;
  }

  return {
    address,
    async *list(within = "") {
      let token: string | undefined;
      do {
        const page = await send(address, () =>
          client.send(
            new ListObjectsV2Command({
              Bucket: bucket,
              Prefix: `${base}${within}`,
              ContinuationToken: token,
            }),
          ),
        );
        for (const { Key = "", Size = 0, ETag = "" } of page.Contents ?? []) {
          // consoles create empty objects as folders
          if (Key.endsWith("/")) continue;
          yield { key: Key.slice(base.length), bytes: Size, etag: ETag.replaceAll('"', "") };
        }
        token = page.NextContinuationToken;
      } while (token !== undefined);
    },
    read: (key, etag = "") =>
      send(`${address}/${key}`, async () => await (await body(key, etag)).transformToByteArray()),
    stream: (key, etag = "") =>
      send(`${address}/${key}`, async () => (await body(key, etag)) as Readable),
    async write(key, content) {
      await send(`${address}/${key}`, () =>
        client.send(new PutObjectCommand({ ...at(key), Body: content })),
      );
    },
    async create(key, content) {
      try {
        const command = () => new PutObjectCommand({ ...at(key), Body: content, IfNoneMatch: "*" });
        await send(`${address}/${key}`, () => client.send(command()));
        return true;
      } catch (error) {
        if (error instanceof StoreError && error.code === "changed") return false;
        throw error;
      }
    },
    async remove(key) {
      await send(`${address}/${key}`, () => client.send(new DeleteObjectCommand(at(key))));
    },
  };
}

const throttled = ["SlowDown", "ThrottlingException", "RequestLimitExceeded", "RequestTimeout"];
/** Errors of connections, and of bodies that end early. */
const connectionCodes = /^(ECONN|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH)/;

function isTransient(error: unknown): boolean {
  const { name, code = "", $metadata } = error as S3Error;
  const status = $metadata?.httpStatusCode ?? 0;
  return (
    status >= 500 ||
    status === 429 ||
    throttled.includes(name) ||
    name === "TimeoutError" ||
    connectionCodes.test(code)
  );
}

const credentialErrors =
  /^(ExpiredToken|ExpiredTokenException|RequestExpired|TokenRefreshRequired|InvalidToken|InvalidAccessKeyId|SignatureDoesNotMatch|CredentialsProviderError|TokenProviderError)$/;

function storeErrorOf(error: S3Error, what: string): StoreError {
  const { name, message, code: connection, $metadata } = error;
  const status = $metadata?.httpStatusCode;
  const of = (code: StoreErrorCode, problem: string) =>
    new StoreError(code, `${what}: ${problem}`, { cause: error });
  if (credentialErrors.test(name)) {
    return of(
      "credentials",
      `the credentials must be valid, got ${name}; renew them and run again: completed shards are kept`,
    );
  }
  if (name === "NoSuchBucket") return of("unavailable", "the bucket does not exist");
  // not every 404: a job that seems to be missing would be planned again
  if (name === "NoSuchKey") return of("missing", "does not exist");
  // 409: another conditional write is in progress
  if (status === 412 || (status === 409 && name === "ConditionalRequestConflict")) {
    return of("changed", "has changed since the job was planned");
  }
  if (status === 403) return of("denied", "access is denied");
  const problem =
    connection ?? (status === undefined ? message : `${name} (HTTP ${status}): ${message}`);
  return of("unavailable", `cannot be used: ${problem.split("\n", 1)[0]}`);
}
