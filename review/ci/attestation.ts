import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import { z } from "zod";
import { sha256 } from "../../contract/fingerprint.ts";
import { parseAs, parseJson } from "../../contract/parse.ts";
import { UserError } from "../../contract/user-error.ts";
import type { Review } from "../changes/stack-review.ts";
import { fingerprintOf, rejectionReasons } from "../input/fingerprint.ts";
import type { ReadPlan } from "./read-files.ts";

/** Also given to `actions/attest`. */
const predicateType = "https://github.com/clipstack/clipstack/review/v1";
const payloadType = "application/vnd.in-toto+json";

const statement = z.object({
  _type: z.literal("https://in-toto.io/Statement/v1"),
  subject: z.array(z.object({ name: z.string(), digest: z.object({ sha256: z.string() }) })),
  predicateType: z.literal(predicateType),
  predicate: z.object({ verdict: z.string(), fingerprints: z.record(z.string(), z.string()) }),
});
type Statement = z.infer<typeof statement>;

const envelope = z.object({
  payloadType: z.literal(payloadType),
  payload: z.base64(),
  signatures: z.array(z.object({ sig: z.base64() })).min(1),
});

/** Returns a signed in-toto statement (DSSE) that the plans were reviewed. */
export function attestationOf(review: Review, plans: readonly ReadPlan[], key: string): string {
  const content: Statement = {
    _type: "https://in-toto.io/Statement/v1",
    subject: plans.map(({ change, text }) => ({
      name: change.stack,
      digest: { sha256: sha256(text) },
    })),
    predicateType,
    predicate: {
      verdict: review.verdict.level,
      fingerprints: Object.fromEntries(
        review.stacks.map(({ stack, fingerprint }) => [stack, fingerprint]),
      ),
    },
  };
  const payload = Buffer.from(JSON.stringify(content));
  const signature = sign(null, signedBytes(payload), ed25519(key, createPrivateKey));
  const signatures = [{ sig: signature.toString("base64") }];
  const text = { payloadType, payload: payload.toString("base64"), signatures };
  return `${JSON.stringify(text, undefined, 2)}\n`;
}

/** Lists how plans differ from an attestation: each must be the same file, or plan the same changes. */
export function attestationProblems(
  text: string,
  plans: readonly ReadPlan[],
  key: string,
): readonly string[] {
  const { payload, signatures } = parseAs(
    envelope,
    parseJson(text, "--attestation"),
    "--attestation",
  );
  const bytes = Buffer.from(payload, "base64");
  const publicKey = ed25519(key, createPublicKey);
  const isSigned = signatures.some(({ sig }) =>
    verify(null, signedBytes(bytes), publicKey, Buffer.from(sig, "base64")),
  );
  if (!isSigned) return ["the signature of the attestation is not of this key"];
  const { subject, predicate } = parseAs(
    statement,
    parseJson(bytes.toString(), "--attestation: payload"),
    "--attestation: payload",
  );
  const names = plans.map(({ change }) => change.stack);
  return [
    ...(predicate.verdict === "blocked" ? ["the reviewed change is blocked"] : []),
    ...subject
      .filter(({ name }) => !names.includes(name))
      .map(({ name }) => `${name}: was reviewed but has no plan`),
    ...plans.flatMap(({ change, text: plan }) => {
      const { stack } = change;
      const isSame = subject.some((it) => it.name === stack && it.digest.sha256 === sha256(plan));
      if (isSame) return [];
      if (!subject.some(({ name }) => name === stack)) return [`${stack}: was not reviewed`];
      return fingerprintOf(change) === predicate.fingerprints[stack]
        ? rejectionReasons(change)
        : [`${stack}: differs from the reviewed change`];
    }),
  ];
}

/** Pre-authentication encoding of DSSE. */
function signedBytes(payload: Buffer): Buffer {
  const head = `DSSEv1 ${payloadType.length} ${payloadType} ${payload.length} `;
  return Buffer.concat([Buffer.from(head), payload]);
}

function ed25519(pem: string, create: (pem: string) => KeyObject): KeyObject {
  let key: KeyObject | undefined;
  try {
    key = create(pem);
  } catch {
    // reported below
  }
  if (key?.asymmetricKeyType !== "ed25519") {
    throw new UserError(
      "--key must be an Ed25519 key in PEM, from 'openssl genpkey -algorithm ed25519'",
    );
  }
  return key;
}
