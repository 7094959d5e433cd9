import { generateKeyPairSync, sign } from "node:crypto";

export interface CertificateOptions {
  /** The only name of the certificate. @default - `localhost` and 127.0.0.1 */
  readonly host?: string;
  /** Start and end of the validity in days from now. @default - one day before and after */
  readonly days?: readonly [number, number];
}

/** Creates a self-signed certificate and its key, in PEM, for tests and drills. */
export function selfSignedCertificate({ host, days = [-1, 1] }: CertificateOptions = {}): {
  readonly cert: string;
  readonly key: string;
} {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const ecdsaWithSha256 = der(0x30, objectId("2a8648ce3d040302"));
  const name = der(
    0x30,
    der(0x31, der(0x30, objectId("550403"), der(0x0c, Buffer.from("localhost")))),
  );
  const day = (offset: number) => {
    const iso = new Date(Date.now() + offset * 86_400_000).toISOString();
    return der(0x17, Buffer.from(`${iso.replace(/[-:T]/g, "").slice(2, 14)}Z`));
  };
  const alternativeNames = der(
    0x30,
    der(0x82, Buffer.from(host ?? "localhost")),
    ...(host === undefined ? [der(0x87, Buffer.from([127, 0, 0, 1]))] : []),
  );
  const signed = der(
    0x30,
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.from([1])),
    ecdsaWithSha256,
    name,
    der(0x30, day(days[0]), day(days[1])),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, der(0x30, der(0x30, objectId("551d11"), der(0x04, alternativeNames)))),
  );
  const signature = sign("sha256", signed, privateKey);
  const certificate = der(0x30, signed, ecdsaWithSha256, der(0x03, Buffer.from([0]), signature));
  const lines = certificate.toString("base64").match(/.{1,64}/g)!;
  return {
    cert: ["-----BEGIN CERTIFICATE-----", ...lines, "-----END CERTIFICATE-----", ""].join("\n"),
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  };
}

/** Encodes a value in DER: tag, length, content. */
function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 128 ? [length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

function objectId(hex: string): Buffer {
  return der(0x06, Buffer.from(hex, "hex"));
}
