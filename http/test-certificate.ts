import { selfSignedCertificate } from "./self-signed-certificate.ts";

/** Creates a self-signed certificate and its key for tests, in PEM. */
export function testCertificate(host?: string): ReturnType<typeof selfSignedCertificate> {
  return selfSignedCertificate(host === undefined ? {} : { host });
}
