import { execFile } from "node:child_process";
import { chmod } from "node:fs/promises";
import { promisify } from "node:util";

/**
 * Writes `tls.crt` and `tls.key` of a server, issued by the authority in `ca.crt` of the folder, which is created on first use. The
 * containers' user can read them.
 *
 * @param names - Subject alternative names: `IP:127.0.0.1`, `DNS:localhost`.
 */
export async function issueCertificate(folder: string, names: readonly string[]): Promise<void> {
  const openssl = (line: string) =>
    promisify(execFile)("openssl", line.split(" "), { cwd: folder });
  const curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
  const alternative = `-addext subjectAltName=${names.join()}`;
  await openssl("x509 -in ca.crt -noout").catch(() =>
    openssl(`req -x509 ${curve} -days 2 -subj /CN=test-ca -keyout ca.key -out ca.crt`),
  );
  await openssl(`req ${curve} -subj /CN=server ${alternative} -keyout tls.key -out request.pem`);
  await openssl(
    "x509 -req -in request.pem -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out tls.crt",
  );
  await chmod(folder, 0o755);
  await chmod(`${folder}/tls.key`, 0o644);
}
