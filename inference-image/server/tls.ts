import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createSecureContext } from "node:tls";
import type { GrpcSecurity } from "../../client/triton/grpc-transport.ts";
import { readFailure } from "../../contract/read-failure.ts";
import { type ClientKey, clientKeys } from "../../contract/server/client-keys.ts";
import type { ServerEnv } from "../../contract/server/server-env.ts";
import { SettingsError } from "./settings.ts";

export const minTlsVersion = "TLSv1.2";

/** Certificate chain and private key, PEM. */
export interface TlsFiles {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/** Reads the files that TLS_CERT_FILE and TLS_KEY_FILE name; `undefined` if neither is set. */
export async function readTlsFiles(
  env: Pick<ServerEnv, "TLS_CERT_FILE" | "TLS_KEY_FILE">,
): Promise<TlsFiles | undefined> {
  return await readKeyPair("TLS_CERT_FILE", env.TLS_CERT_FILE, "TLS_KEY_FILE", env.TLS_KEY_FILE);
}

/** End of the validity of the first certificate in a chain. */
export function expiryOf({ cert }: TlsFiles): Date {
  return new Date(new X509Certificate(cert).validTo);
}

/** Reads the file that API_KEYS_FILE names. Errors contain no value of the file, which has secrets. */
export async function readClientKeys(path: string): Promise<readonly ClientKey[]> {
  const text = new TextDecoder().decode(await read("API_KEYS_FILE", path));
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    throw new SettingsError(`API_KEYS_FILE must be JSON, got '${path}'`);
  }
  const result = clientKeys.safeParse(content);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new SettingsError(
    `API_KEYS_FILE: ${["keys", ...issue!.path].join(".")} ${issue!.message}, in '${path}'`,
  );
}

/** Reads the files that the TRITON_TLS_… settings and TRITON_METADATA_FILE name. */
export async function readTritonSecurity(
  env: Pick<
    ServerEnv,
    | "TRITON_TLS_CA_FILE"
    | "TRITON_TLS_CERT_FILE"
    | "TRITON_TLS_KEY_FILE"
    | "TRITON_TLS_SERVER_NAME"
    | "TRITON_METADATA_FILE"
  >,
): Promise<GrpcSecurity> {
  const { TRITON_TLS_CA_FILE: caPath, TRITON_METADATA_FILE: metadataPath } = env;
  const metadata = metadataPath === undefined ? undefined : await readMetadata(metadataPath);
  if (caPath === undefined) return { metadata };
  const ca = await read("TRITON_TLS_CA_FILE", caPath);
  certificateOf("TRITON_TLS_CA_FILE", caPath, ca);
  const client = await readKeyPair(
    "TRITON_TLS_CERT_FILE",
    env.TRITON_TLS_CERT_FILE,
    "TRITON_TLS_KEY_FILE",
    env.TRITON_TLS_KEY_FILE,
  );
  return { metadata, tls: { ca, client, serverName: env.TRITON_TLS_SERVER_NAME } };
}

/** Reads lines `name: value`. Errors name the line number, not its text, which may be a secret. */
async function readMetadata(path: string): Promise<Readonly<Record<string, string>>> {
  const metadata: Record<string, string> = {};
  const text = (await read("TRITON_METADATA_FILE", path)).toString("utf8");
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    if (line.trim() === "") continue;
    // reserved names of gRPC and names of binary values are not accepted
    const [, name, value] = /^(?!grpc-)([0-9a-z_.-]+)(?<!-bin): *([\x20-\x7e]+)$/.exec(line) ?? [];
    if (name === undefined || value === undefined) {
      throw new SettingsError(
        `TRITON_METADATA_FILE must have lines 'name: value' in lower-case and printable ASCII characters, got an invalid line ${index + 1} in '${path}'`,
      );
    }
    metadata[name] = value.trimEnd();
  }
  return metadata;
}

async function readKeyPair(
  certName: string,
  certPath: string | undefined,
  keyName: string,
  keyPath: string | undefined,
): Promise<TlsFiles | undefined> {
  if (certPath === undefined || keyPath === undefined) return undefined;
  const [cert, key] = await Promise.all([read(certName, certPath), read(keyName, keyPath)]);
  const certificate = certificateOf(certName, certPath, cert);
  let isPair: boolean;
  try {
    isPair = certificate.checkPrivateKey(createPrivateKey(key));
  } catch {
    throw new SettingsError(
      `${keyName} must be a private key in PEM without a password, got '${keyPath}'`,
    );
  }
  if (!isPair) {
    throw new SettingsError(
      `${keyName} must be the key of the first certificate in ${certName}, got '${keyPath}'`,
    );
  }
  try {
    createSecureContext({ cert, key });
  } catch (error) {
    throw new SettingsError(
      `${certName} must be a valid certificate, got '${certPath}': ${(error as Error).message}`,
    );
  }
  return { cert, key };
}

function certificateOf(name: string, path: string, pem: Buffer): X509Certificate {
  try {
    if (!pem.includes("-----BEGIN")) throw new Error("DER");
    return new X509Certificate(pem);
  } catch {
    throw new SettingsError(`${name} must be a certificate in PEM, got '${path}'`);
  }
}

async function read(name: string, path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    throw new SettingsError(`${name} must be a readable file: '${path}' ${readFailure(error)}`);
  }
}
