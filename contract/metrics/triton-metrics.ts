import { type Metric, namesOf } from "./metric.ts";

const byModel = ["model", "version"] as const;
const byGpu = ["gpu_uuid"] as const;

/** Triton's metrics of its models, with Triton's help. Latency summaries are off: they reduce the throughput. */
export const tritonModelMetricTable = {
  success: {
    name: "nv_inference_request_success",
    type: "counter",
    unit: "requests",
    labels: byModel,
    help: "Number of successful inference requests, all batch sizes",
  },
  failure: {
    name: "nv_inference_request_failure",
    type: "counter",
    unit: "requests",
    labels: [...byModel, "reason"],
    help: "Number of failed inference requests, all batch sizes",
  },
  count: {
    name: "nv_inference_count",
    type: "counter",
    unit: "inferences",
    labels: byModel,
    help: "Number of inferences performed (does not include cached requests)",
  },
  executions: {
    name: "nv_inference_exec_count",
    type: "counter",
    unit: "executions",
    labels: byModel,
    help: "Number of model executions performed (does not include cached requests)",
  },
  requestMicroseconds: {
    name: "nv_inference_request_duration_us",
    type: "counter",
    unit: "microseconds",
    labels: byModel,
    help: "Cumulative inference request duration in microseconds (includes cached requests)",
  },
  queueMicroseconds: {
    name: "nv_inference_queue_duration_us",
    type: "counter",
    unit: "microseconds",
    labels: byModel,
    help: "Cumulative inference queuing duration in microseconds (includes cached requests)",
  },
  computeInputMicroseconds: {
    name: "nv_inference_compute_input_duration_us",
    type: "counter",
    unit: "microseconds",
    labels: byModel,
    help: "Cumulative compute input duration in microseconds (does not include cached requests)",
  },
  computeInferMicroseconds: {
    name: "nv_inference_compute_infer_duration_us",
    type: "counter",
    unit: "microseconds",
    labels: byModel,
    help: "Cumulative compute inference duration in microseconds (does not include cached requests)",
  },
  computeOutputMicroseconds: {
    name: "nv_inference_compute_output_duration_us",
    type: "counter",
    unit: "microseconds",
    labels: byModel,
    help: "Cumulative inference compute output duration in microseconds (does not include cached requests)",
  },
  pendingRequests: {
    name: "nv_inference_pending_request_count",
    type: "gauge",
    unit: "requests",
    labels: byModel,
    help: "Instantaneous number of pending requests awaiting execution per-model.",
  },
} as const satisfies Readonly<Record<string, Metric>>;

/** Triton's metrics of its process and its host. */
export const tritonHostMetricTable = {
  pinnedMemoryTotal: {
    name: "nv_pinned_memory_pool_total_bytes",
    type: "gauge",
    unit: "bytes",
    labels: [],
    help: "Pinned memory pool total memory size, in bytes",
  },
  pinnedMemoryUsed: {
    name: "nv_pinned_memory_pool_used_bytes",
    type: "gauge",
    unit: "bytes",
    labels: [],
    help: "Pinned memory pool used memory size, in bytes",
  },
  cpuUtilization: {
    name: "nv_cpu_utilization",
    type: "gauge",
    unit: "0 to 1",
    labels: [],
    help: "CPU utilization rate [0.0 - 1.0]",
  },
  cpuMemoryTotal: {
    name: "nv_cpu_memory_total_bytes",
    type: "gauge",
    unit: "bytes",
    labels: [],
    help: "CPU total memory (RAM), in bytes",
  },
  cpuMemoryUsed: {
    name: "nv_cpu_memory_used_bytes",
    type: "gauge",
    unit: "bytes",
    labels: [],
    help: "CPU used memory (RAM), in bytes",
  },
} as const satisfies Readonly<Record<string, Metric>>;

/** Triton's metrics of the GPUs that it sees. */
export const tritonGpuMetricTable = {
  gpuUtilization: {
    name: "nv_gpu_utilization",
    type: "gauge",
    unit: "0 to 1",
    labels: byGpu,
    help: "GPU utilization rate [0.0 - 1.0)",
  },
  gpuMemoryTotal: {
    name: "nv_gpu_memory_total_bytes",
    type: "gauge",
    unit: "bytes",
    labels: byGpu,
    help: "GPU total memory, in bytes",
  },
  gpuMemoryUsed: {
    name: "nv_gpu_memory_used_bytes",
    type: "gauge",
    unit: "bytes",
    labels: byGpu,
    help: "GPU used memory, in bytes",
  },
  gpuPowerUsage: {
    name: "nv_gpu_power_usage",
    type: "gauge",
    unit: "watts",
    labels: byGpu,
    help: "GPU power usage in watts",
  },
  gpuPowerLimit: {
    name: "nv_gpu_power_limit",
    type: "gauge",
    unit: "watts",
    labels: byGpu,
    help: "GPU power management limit in watts",
  },
  gpuEnergy: {
    name: "nv_energy_consumption",
    type: "counter",
    unit: "joules",
    labels: byGpu,
    help: "GPU energy consumption in joules since the Triton Server started",
  },
} as const satisfies Readonly<Record<string, Metric>>;

export const tritonMetrics = namesOf({ ...tritonModelMetricTable, ...tritonGpuMetricTable });
