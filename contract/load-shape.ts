import { z } from "zod";

/**
 * Connections of the clients: all on one, a new one per request, or a number of them. Absent: one per outstanding request.
 */
const channels = z.union([z.enum(["shared", "new"]), z.int().min(1)]).optional();

/** How the requests of a load are sent: by a number of clients, or at a rate. */
export const loadShape = z.discriminatedUnion("kind", [
  z.strictObject({
    kind: z.literal("closed loop"),
    /** Clients; each sends its next request when it receives the response to the previous one. */
    concurrency: z.int().min(1),
    channels,
  }),
  z.strictObject({
    kind: z.literal("open loop"),
    arrivals: z.enum(["constant", "poisson"]),
    /** Requests per second, sent regardless of outstanding responses. */
    ratePerSecond: z.number().gt(0),
    /** Seed of the arrival times. */
    seed: z.int(),
    channels,
  }),
]);
export type LoadShape = z.infer<typeof loadShape>;
