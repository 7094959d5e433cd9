/** The parts of jstat 1.9 that are used; it has no types of its own. */
declare module "jstat" {
  const jStat: {
    /** Source of uniform numbers in [0, 1) of all samples. */
    setRandom(uniform: () => number): void;
    /** Quantile of a sample, interpolated linearly; sorts the array. */
    percentile(values: number[], part: number): number;
    readonly beta: { sample(alpha: number, beta: number): number };
    readonly normal: { cdf(x: number, mean: number, deviation: number): number };
    /** Quantile of Student's t. */
    readonly studentt: { inv(p: number, degreesOfFreedom: number): number };
  };
  export default { jStat };
}
