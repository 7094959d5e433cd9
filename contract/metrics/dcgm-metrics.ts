import { type Metric, namesOf } from "./metric.ts";

/** Labels of every field; DCGM exporter adds others, on Kubernetes those of the pod that uses the GPU. */
const labels = ["gpu", "UUID", "modelName", "Hostname"] as const;

/** Fields of DCGM exporter that dashboards and alerts use. Its default counters lack the power limit and the clock events. */
export const dcgmMetricTable = {
  utilization: {
    name: "DCGM_FI_DEV_GPU_UTIL",
    type: "gauge",
    unit: "percent",
    labels,
    help: "GPU utilization (in %).",
  },
  memoryUsed: {
    name: "DCGM_FI_DEV_FB_USED",
    type: "gauge",
    unit: "MiB",
    labels,
    help: "Framebuffer memory used (in MiB).",
  },
  memoryFree: {
    name: "DCGM_FI_DEV_FB_FREE",
    type: "gauge",
    unit: "MiB",
    labels,
    help: "Framebuffer memory free (in MiB).",
  },
  power: {
    name: "DCGM_FI_DEV_POWER_USAGE",
    type: "gauge",
    unit: "watts",
    labels,
    help: "Power draw (in W).",
  },
  powerLimit: {
    name: "DCGM_FI_DEV_POWER_MGMT_LIMIT",
    type: "gauge",
    unit: "watts",
    labels,
    help: "Current power limit (in W).",
  },
  temperature: {
    name: "DCGM_FI_DEV_GPU_TEMP",
    type: "gauge",
    unit: "degrees Celsius",
    labels,
    help: "GPU temperature (in C).",
  },
  smClock: {
    name: "DCGM_FI_DEV_SM_CLOCK",
    type: "gauge",
    unit: "MHz",
    labels,
    help: "SM clock frequency (in MHz).",
  },
  memoryClock: {
    name: "DCGM_FI_DEV_MEM_CLOCK",
    type: "gauge",
    unit: "MHz",
    labels,
    help: "Memory clock frequency (in MHz).",
  },
  clockEvents: {
    name: "DCGM_EXP_CLOCK_EVENTS_COUNT",
    type: "gauge",
    unit: "samples",
    labels: [...labels, "clock_event"],
    help: "Count of clock events within the user-specified time window (see clock-events-count-window-size param).",
  },
  xid: {
    name: "DCGM_FI_DEV_XID_ERRORS",
    type: "gauge",
    unit: "XID",
    labels,
    help: "Value of the last XID error encountered.",
  },
} as const satisfies Readonly<Record<string, Metric>>;

export const dcgmMetrics = namesOf(dcgmMetricTable);

/** Counters file of DCGM exporter (`--collectors`) with these fields. */
export const dcgmCounters = Object.values(dcgmMetricTable)
  .map(({ name, type, help }) => `${name}, ${type}, ${help}\n`)
  .join("");
