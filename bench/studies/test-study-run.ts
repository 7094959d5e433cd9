import { testContext } from "../run/test-run.ts";
import type { StudyGrid, StudyRun } from "./study.ts";

/** Smallest grid of the studies, for tests. */
export const testGrid: StudyGrid = {
  batchSizes: [1],
  protocol: { batchSizes: [1], concurrency: [1, 2], channels: ["each", "shared"] },
  concurrency: { concurrency: [1], "queue-delay": [1], scaling: [1], topology: [1] },
  queueDelaysUs: [],
};

/** Run of a study on open endpoints; a failure is an error. */
export function testStudyRun(
  endpoints: StudyRun["endpoints"],
  changes: Partial<StudyRun> & Pick<StudyRun, "measure">,
): StudyRun {
  return {
    environment: "e",
    open: {
      target: "simulation",
      targets: endpoints.map(({ target }) => target),
      subject: { environments: [], servers: [] },
      notes: [],
      close: async () => {},
    },
    context: testContext(),
    grid: testGrid,
    round: 1,
    endpoints,
    model: { name: "model" },
    addLoadPoints: () => {},
    fail(line) {
      throw new Error(line);
    },
    addResult: (result) => result,
    ...changes,
  };
}
