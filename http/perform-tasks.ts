import { parentPort } from "node:worker_threads";
import type { TaskFailure, TaskResult } from "./task-thread.ts";

export interface PerformedTask {
  readonly value: unknown;
  /** Arrays in the value whose buffers move to the other thread. */
  readonly transferred?: readonly ArrayBufferView[];
}

/** Performs the tasks of a `TaskThread` one at a time: their results have the order of the tasks. */
export function performTasks<Task>(
  perform: (task: Task) => PerformedTask | Promise<PerformedTask>,
): void {
  let previous: Promise<void> = Promise.resolve();
  const performOne = async (task: Task): Promise<void> => {
    let result: TaskResult;
    let transferred: readonly ArrayBufferView[] = [];
    try {
      const performed = await perform(task);
      result = { value: performed.value };
      transferred = performed.transferred ?? [];
    } catch (error) {
      const { name, message, code, image, text, param } = error as TaskFailure;
      result = { failure: { name, message, code, image, text, param } };
    }
    // arrays may share a buffer
    const buffers = new Set(transferred.map(({ buffer }) => buffer as ArrayBuffer));
    parentPort?.postMessage(result, [...buffers]);
  };
  parentPort?.on("message", (task: Task) => {
    previous = previous.then(() => performOne(task));
  });
}
