/** The parts of jstat 1.9 that are used; it has no types of its own. */
declare module "jstat" {
  const jStat: {
    /** Student's t: quantile and distribution function. */
    readonly studentt: {
      inv(p: number, degreesOfFreedom: number): number;
      cdf(t: number, degreesOfFreedom: number): number;
    };
    /** Quantile of a sample, interpolated linearly; sorts the array. */
    percentile(values: number[], part: number): number;
  };
  export default { jStat };
}
