/** What a GPU said at one moment. */
export interface GpuReading {
  /** UUID, or index where that is what its source gives. */
  readonly id: string;
  /** 0..1 */
  readonly utilization?: number;
  readonly memoryUsedMiB?: number;
  readonly memoryTotalMiB?: number;
}
