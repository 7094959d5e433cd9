/** How long a client may take to send a request, in milliseconds. */
export const requestTimeoutMs = 120_000;
