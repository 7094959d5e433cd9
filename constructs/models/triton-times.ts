/** Start and stop times of Triton, on a host and in a cluster. */

/** Time limit for requests in flight when Triton stops: `--exit-timeout-secs`. */
export const exitTimeoutSeconds = 30;

/** Time limit for loading a model into an execution provider that compiles nothing. */
const loadSeconds = 120;

/**
 * Time to build one TensorRT engine on a cold cache: 2-5 minutes were measured on an RTX A4000, 56 s on an A100. Every
 * execution instance builds its own (onnxruntime_backend#66).
 */
const engineBuildSeconds = 300;

/**
 * Maximum time until a Triton server is ready, with an empty engine cache.
 *
 * @param compiles - Whether TensorRT builds engines.
 * @param executionInstances - Execution instances of the model, over all GPUs.
 */
export function tritonStartSeconds(compiles: boolean, executionInstances: number): number {
  return compiles ? loadSeconds + executionInstances * engineBuildSeconds : loadSeconds;
}
