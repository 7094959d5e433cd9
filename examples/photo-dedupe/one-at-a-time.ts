/** Runs what it is given one after the other. A failure is its caller's, and stops nothing. */
export interface OneAtATime {
  run<Result>(work: () => Promise<Result>): Promise<Result>;
  /** All that was given has ended. */
  idle(): Promise<void>;
}

export function oneAtATime(): OneAtATime {
  let last: Promise<unknown> = Promise.resolve();
  return {
    run(work) {
      const next = last.then(work);
      last = next.catch(() => {});
      return next;
    },
    async idle() {
      await last;
    },
  };
}
