/** Returns a signal that is aborted once the clients of all items of a batch have disconnected. */
export function whenAllCancelled(batch: readonly { readonly signal: AbortSignal | undefined }[]): {
  signal: AbortSignal;
  release(): void;
} {
  const controller = new AbortController();
  const abortIfAll = () => {
    if (batch.every(({ signal }) => signal?.aborted)) controller.abort();
  };
  for (const { signal } of batch) signal?.addEventListener("abort", abortIfAll, { once: true });
  return {
    signal: controller.signal,
    release() {
      for (const { signal } of batch) signal?.removeEventListener("abort", abortIfAll);
    },
  };
}
