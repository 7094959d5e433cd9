import * as threads from "node:worker_threads";

/** Not in Node 20, where no such memory throws. */
const { isMarkedAsUntransferable } = threads as {
  readonly isMarkedAsUntransferable?: (memory: object) => boolean;
};

/**
 * Returns whether the memory of an array can move to another thread: the array spans its whole buffer, unlike a small body that arrived
 * in chunks, and the buffer may be detached, unlike one that native code allocated.
 */
export function isTransferable({ buffer, byteLength }: ArrayBufferView): boolean {
  return (
    buffer instanceof ArrayBuffer &&
    byteLength === buffer.byteLength &&
    isMarkedAsUntransferable?.(buffer) !== true
  );
}
