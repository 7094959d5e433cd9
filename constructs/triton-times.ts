/** How long a Triton takes to start and to stop, on a host as in a cluster. */

/** Requests in flight may take this long when Triton stops: `--exit-timeout-secs`. */
export const exitTimeoutSeconds = 30;

/** Time to load a model into an execution provider that compiles nothing. */
const loadSeconds = 120;

/**
 * Time to build one TensorRT engine on a cold cache: 2-5 minutes were measured on an RTX A4000, 56 s on an A100. Every
 * execution instance builds its own (onnxruntime_backend#66).
 */
const engineBuildSeconds = 300;

/**
 * Time until a Triton is ready, at most, where no engine is in the cache.
 *
 * @param compiles - Whether TensorRT builds engines.
 * @param executionInstances - Of the model, over all GPUs.
 */
export function tritonStartSeconds(compiles: boolean, executionInstances: number): number {
  return compiles ? loadSeconds + executionInstances * engineBuildSeconds : loadSeconds;
}
