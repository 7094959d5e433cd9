import type { RestrictionFlag } from "./triton-flags.ts";

/** Options of a Triton emulator whose model control API requires a key, for tests. */
export function modelControlFlags(key: string): Record<RestrictionFlag, string[]> {
  const restriction = [`model-repository:model-control-key=${key}`];
  return { "http-restricted-api": restriction, "grpc-restricted-protocol": restriction };
}
