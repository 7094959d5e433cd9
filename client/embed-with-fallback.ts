import { ClientError } from "./client-error.ts";
import type { LocalModel } from "./local-model.ts";
import type { RemoteEmbedder } from "./remote-embedder.ts";

/** Time for which the local model is used before the service is tried again. */
const retryRemoteMs = 30_000;

/** Errors that do not concern the request, so the local model may succeed. */
const fallbackCodes: ReadonlySet<ClientError["code"]> = new Set(["unavailable", "timeout"]);

/**
 * Returns a function that embeds 1 to 32 images remotely, or with the local model while the service is unavailable.
 *
 * @param onFallback - Called the first time that the local model is used, with the reason.
 */
export function embedWithFallback(
  remote: RemoteEmbedder,
  local: LocalModel,
  onFallback: (reason: string) => void,
): RemoteEmbedder["embed"] {
  let isReported = false;
  let retryRemoteAt = 0;

  async function loadInsteadOfRemote(reason: ClientError | undefined): Promise<void> {
    try {
      await local.load();
    } catch (cause) {
      const { code, problem } = cause as ClientError;
      const prefix = reason === undefined ? "" : `${reason.problem}; `;
      retryRemoteAt = 0;
      throw new ClientError(
        reason?.code ?? code,
        `${prefix}cannot fall back to the local model: ${problem}`,
        { cause },
      );
    }
  }

  return async (images) => {
    let reason: ClientError | undefined;
    if (performance.now() >= retryRemoteAt) {
      try {
        return await remote.embed(images);
      } catch (error) {
        if (!(error instanceof ClientError) || !fallbackCodes.has(error.code)) throw error;
        reason = error;
        retryRemoteAt = performance.now() + retryRemoteMs;
      }
    }
    await loadInsteadOfRemote(reason);
    if (!isReported && reason !== undefined) {
      isReported = true;
      onFallback(reason.problem);
    }
    return await local.embed(images);
  };
}
