import type { FastifyReply } from "fastify";
import { fingerprintHeader, modelHeader } from "../../contract/embed-api.ts";
import type { Modality } from "../../contract/model-spec.ts";

/** Fingerprint of each modality in a response, if known. */
export type Fingerprints = Readonly<Partial<Record<Modality, string | undefined>>>;

/** Sets the headers that state which model made the embeddings of a response. */
export function identify(reply: FastifyReply, model: string, fingerprints: Fingerprints): void {
  reply.header(modelHeader, model);
  const known = Object.entries(fingerprints).filter(([, fingerprint]) => fingerprint !== undefined);
  if (known.length === 0) return;
  reply.header(fingerprintHeader, known.map((entry) => entry.join("=")).join(", "));
}
