// What TypeScript has to know of thread-priority.mjs.
export const niceness: { readonly runtime: number; readonly decoding: number };

export function lowerPriority(nice: number): void;
