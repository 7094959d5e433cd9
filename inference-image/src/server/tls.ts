import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createSecureContext } from "node:tls";
import type { ServerEnv } from "../contract/server-env.ts";
import { SettingsError } from "./settings.ts";

/** Certificate chain and private key, PEM. */
export interface TlsFiles {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/**
 * Read the files that TLS_CERT_FILE and TLS_KEY_FILE name; `undefined` where they name none.
 *
 * @throws {SettingsError} one line, when one is missing or they do not fit
 */
export async function readTlsFiles(
  env: Pick<ServerEnv, "TLS_CERT_FILE" | "TLS_KEY_FILE">,
): Promise<TlsFiles | undefined> {
  const { TLS_CERT_FILE, TLS_KEY_FILE } = env;
  if (TLS_CERT_FILE === undefined || TLS_KEY_FILE === undefined) return undefined;
  const [cert, key] = await Promise.all([
    read("TLS_CERT_FILE", TLS_CERT_FILE),
    read("TLS_KEY_FILE", TLS_KEY_FILE),
  ]);
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(cert);
  } catch {
    throw new SettingsError(`TLS_CERT_FILE must be a certificate in PEM, got '${TLS_CERT_FILE}'`);
  }
  let isPair: boolean;
  try {
    isPair = certificate.checkPrivateKey(createPrivateKey(key));
  } catch {
    throw new SettingsError(
      `TLS_KEY_FILE must be a private key in PEM without a password, got '${TLS_KEY_FILE}'`,
    );
  }
  if (!isPair) {
    throw new SettingsError(
      `TLS_KEY_FILE must be the key of the certificate in TLS_CERT_FILE, got '${TLS_KEY_FILE}'`,
    );
  }
  try {
    createSecureContext({ cert, key });
  } catch (error) {
    throw new SettingsError(
      `TLS_CERT_FILE must be a certificate that can be used, got '${TLS_CERT_FILE}': ${(error as Error).message}`,
    );
  }
  return { cert, key };
}

async function read(name: string, path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const why = code === "ENOENT" ? "is not there" : `cannot be read (${code})`;
    throw new SettingsError(`${name} must be a file that can be read: '${path}' ${why}`);
  }
}
