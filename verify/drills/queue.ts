import { type HostDrill, hostPhases } from "./host-run.ts";

/** Sends more concurrent requests than the server that receives the load may queue. */
export const queueDrill: HostDrill = {
  name: "queue",
  question: "Are requests beyond the queue rejected with Retry-After, and the others answered?",
  help: "Keeps a quarter more requests open than MAX_QUEUE_SIZE for --seconds.",
  phases: hostPhases(
    "burst",
    async (run) => {
      await run.watch(run.options.seconds);
      const { requests, rejected = {} } = run.load.of("burst");
      const count = Object.values(rejected).reduce((sum, number) => sum + number, 0);
      run.check(
        "the queue was full",
        count > 0,
        `${count} of ${requests} requests were rejected with Retry-After`,
      );
    },
    ({ concurrency }) => ({ kind: "closed loop", concurrency }),
  ),
};
