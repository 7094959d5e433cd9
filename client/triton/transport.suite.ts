import { createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { tritonType } from "../../contract/model-config.ts";
import { elementCount, type Tensor } from "../../contract/tensor.ts";
import type { TritonModel } from "../../contract/triton-models.ts";
import { closedPort, listen, type TestListener } from "../../http/test-listener.ts";
import { pngOf } from "./test-png.ts";
import { type Transport, TritonError } from "./transport.ts";

/** Tests that every {@link Transport} passes, with this project's server and with a real Triton server. */
export interface TransportSuite {
  readonly name: string;
  /** Model loaded on the server, with one FP32, UINT8 or BYTES (image file) input and one FP32 output. */
  readonly model: TritonModel;
  /** Called once, after the hooks of the surrounding `describe`. */
  open(): Transport;
  /** Opens a transport to a server on 127.0.0.1 that accepts connections and never responds. */
  openSilent(port: number): Transport;
  /** Opens a transport to a port of 127.0.0.1 without a listener. */
  openUnreachable(port: number): Transport;
  /** Largest batch within the server's limit of request bytes. @default model.maxBatchSize */
  readonly largestBatch?: number;
}

const options = { timeoutMs: 30_000 };

export function describeTransport({
  name,
  model,
  open,
  openSilent,
  openUnreachable,
  largestBatch = model.maxBatchSize,
}: TransportSuite): void {
  const [inputSpec] = model.inputs;
  const [outputSpec] = model.outputs;
  if (inputSpec === undefined || outputSpec === undefined) throw new Error("model has no tensors");
  const itemElements = elementCount(inputSpec.dims);

  const pattern = Float32Array.from({ length: itemElements }, (_, index) => Math.sin(index / 7));

  /** Different images: item i of `inputOf(n, first)` equals `inputOf(1, first + i)`. */
  function inputOf(items: number, first = 0): Tensor {
    const head = { name: inputSpec!.name, shape: [items, ...inputSpec!.dims] };
    if (inputSpec!.dataType === "BYTES") {
      const data = Array.from({ length: items }, (_, item) => picture(first + item));
      return { ...head, dataType: "BYTES", data };
    }
    if (inputSpec!.dataType === "UINT8") {
      const data = new Uint8Array(items * itemElements);
      for (let item = 0; item < items; item += 1) {
        data.set(bytePattern, item * itemElements);
        data.fill(6 * (first + item), item * itemElements, (item + 0.5) * itemElements);
      }
      return { ...head, dataType: "UINT8", data };
    }
    const data = new Float32Array(items * itemElements);
    for (let item = 0; item < items; item += 1) {
      data.set(pattern, item * itemElements);
      data.fill(first + item, item * itemElements, item * itemElements + itemElements / 2);
    }
    return { ...head, dataType: "FP32", data };
  }

  const bytePattern = Uint8Array.from(pattern, (value) => 128 + 127 * value);

  /** Item `index` of two, as a view of the batch. */
  function viewOf(batch: Tensor, index: number): Tensor {
    const shape = [1, ...inputSpec!.dims];
    const cut = [index * itemElements, (index + 1) * itemElements] as const;
    switch (batch.dataType) {
      case "BYTES": {
        const all = Buffer.concat(batch.data);
        const start = index === 0 ? 0 : batch.data[0]!.byteLength;
        const data = [all.subarray(start, start + batch.data[index]!.byteLength)];
        return { ...batch, shape, data };
      }
      default:
        return { ...batch, shape, data: batch.data.subarray(...cut) } as Tensor;
    }
  }

  describe(name, () => {
    let transport: Transport;
    const others: Transport[] = [];
    beforeAll(() => {
      transport = open();
    });
    afterAll(async () => {
      for (const opened of [transport, ...others]) await opened.close();
    });
    const other = (opened: Transport) => {
      others.push(opened);
      return opened;
    };

    async function rows(input: Tensor): Promise<readonly Float32Array[]> {
      const [output] = await transport.infer(model.name, [input], options);
      if (output?.dataType !== "FP32") throw new Error(`not FP32: ${output?.dataType}`);
      expect(output.shape).toEqual([input.shape[0], ...outputSpec!.dims]);
      const width = elementCount(outputSpec!.dims);
      return Array.from({ length: input.shape[0]! }, (_, row) =>
        output.data.slice(row * width, (row + 1) * width),
      );
    }

    async function rejection(call: Promise<unknown>): Promise<TritonError> {
      const error = await call.then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(error).toBeInstanceOf(TritonError);
      return error as TritonError;
    }

    test("reports the server as live and ready", async () => {
      expect(await transport.live(options)).toBe(true);
      expect(await transport.ready(undefined, options)).toBe(true);
    });

    test("reports a loaded model as ready and a missing one as not ready", async () => {
      expect(await transport.ready(model.name, options)).toBe(true);
      expect(await transport.ready("no_such_model", options)).toBe(false);
    });

    test("returns the server's name", async () => {
      expect((await transport.serverMetadata(options)).name).not.toBe("");
    });

    test("returns the model's inputs and outputs with the batch dimension", async () => {
      expect(await transport.modelMetadata(model.name, options)).toMatchObject({
        name: model.name,
        versions: ["1"],
        inputs: [{ ...inputSpec, dims: [-1, ...inputSpec.dims] }],
        outputs: [{ ...outputSpec, dims: [-1, ...outputSpec.dims] }],
      });
    });

    test("returns the model's configuration with the field names of model_config.proto", async () => {
      expect(await transport.modelConfig(model.name, options)).toMatchObject({
        name: model.name,
        max_batch_size: model.maxBatchSize,
        input: [
          {
            name: inputSpec.name,
            data_type: tritonType(inputSpec.dataType),
            dims: [...inputSpec.dims],
          },
        ],
        output: [{ name: outputSpec.name, data_type: "TYPE_FP32", dims: [...outputSpec.dims] }],
      });
    });

    test("returns one row per item of a batch, in order", async () => {
      const batch = await rows(inputOf(3));
      for (const [index, row] of batch.entries()) {
        const [alone] = await rows(inputOf(1, index));
        for (const [column, value] of row.entries()) expect(value).toBeCloseTo(alone![column]!, 3);
      }
      expect(batch[0]).not.toEqual(batch[1]);
    });

    test("sends the largest batch", async () => {
      expect(await rows(inputOf(largestBatch))).toHaveLength(largestBatch);
    });

    test("sends an input that is a view of another array", async () => {
      const [row] = await rows(viewOf(inputOf(2), 1));
      const [same] = await rows(inputOf(1, 1));
      expect(row).toEqual(same);
    });

    test("returns to each concurrent call its own result", async () => {
      const alone = await Promise.all([0, 1, 2, 3, 4, 5].map((first) => rows(inputOf(1, first))));
      const distinct = new Set(alone.map(([row]) => row!.join()));
      expect(distinct.size).toBe(6);
    });

    test("returns the requested outputs with the request's id", async () => {
      const outputs = await transport.infer(model.name, [inputOf(1)], {
        ...options,
        requestId: "request-7",
        outputs: [outputSpec.name],
      });
      expect(outputs.map((output) => output.name)).toEqual([outputSpec.name]);
    });

    test("counts inferences and executions", async () => {
      // a request of an earlier test may still be uncounted
      let before = await transport.statistics(model.name, options);
      for (let last = -1; last !== before.success.count; ) {
        last = before.success.count;
        await sleep(100);
        before = await transport.statistics(model.name, options);
      }
      await transport.infer(model.name, [inputOf(4)], options);
      await transport.infer(model.name, [inputOf(2)], options);
      // Triton counts a request shortly after its response
      const after = await vi.waitUntil(async () => {
        const now = await transport.statistics(model.name, options);
        return now.success.count - before.success.count >= 2 ? now : undefined;
      }, options.timeoutMs);
      expect(after.inferenceCount - before.inferenceCount).toBe(6);
      expect(after.executionCount - before.executionCount).toBe(2);
      expect(after.success.count - before.success.count).toBe(2);
      const fours = (stats: typeof after) =>
        stats.batches.find(({ batchSize }) => batchSize === 4)?.executions ?? 0;
      expect(fours(after) - fours(before)).toBe(1);
    });

    test("fails with 'rejected' and the server's message if the input has another name", async () => {
      const error = await rejection(
        transport.infer(model.name, [{ ...inputOf(1), name: "imagee" }], options),
      );
      expect(error.code).toBe("rejected");
      expect(error.message).toContain(
        `unexpected inference input 'imagee' for model '${model.name}'`,
      );
    });

    test("fails with 'rejected' and the server's message if the input has another shape", async () => {
      const wrong = { ...inputOf(1), shape: [1, ...inputSpec.dims, 1] };
      const error = await rejection(transport.infer(model.name, [wrong], options));
      expect(error.code).toBe("rejected");
      expect(error.message).toContain(
        `unexpected shape for input '${inputSpec.name}' for model '${model.name}'. Expected [-1,${inputSpec.dims.join(",")}], got [1,${inputSpec.dims.join(",")},1]`,
      );
    });

    test("fails with 'rejected' and the server's message if the input has another type", async () => {
      const head = { name: inputSpec.name, shape: [1, ...inputSpec.dims] };
      const wrong: Tensor =
        inputSpec.dataType === "UINT8"
          ? { ...head, dataType: "FP32", data: new Float32Array(itemElements) }
          : { ...head, dataType: "UINT8", data: new Uint8Array(itemElements) };
      const error = await rejection(transport.infer(model.name, [wrong], options));
      expect(error.code).toBe("rejected");
      expect(error.message).toContain(
        `data-type is '${wrong.dataType}', but model '${model.name}' expects '${inputSpec.dataType}'`,
      );
    });

    test("fails with 'rejected' and the server's message if the batch is too large", async () => {
      const error = await rejection(
        transport.infer(model.name, [inputOf(model.maxBatchSize + 1)], options),
      );
      expect(error.code).toBe("rejected");
      expect(error.message).toContain(
        largestBatch < model.maxBatchSize
          ? "JSON must be at most 16777216 bytes, got "
          : `inference request batch-size must be <= ${model.maxBatchSize} for '${model.name}'`,
      );
    });

    test("fails with 'rejected' if the model or output does not exist", async () => {
      const noModel = await rejection(transport.infer("no_such_model", [inputOf(1)], options));
      expect(noModel.code).toBe("rejected");
      expect(noModel.message).toContain("unknown model: 'no_such_model' is not found");
      const noOutput = await rejection(
        transport.infer(model.name, [inputOf(1)], { ...options, outputs: ["logits"] }),
      );
      expect(noOutput.code).toBe("rejected");
      expect(noOutput.message).toContain(
        `unexpected inference output 'logits' for model '${model.name}'`,
      );
    });

    test("fails with 'unavailable' and reports the server as not live if the connection is refused", async () => {
      const unreachable = other(openUnreachable(await closedPort()));
      const error = await rejection(unreachable.infer(model.name, [inputOf(1)], options));
      expect(error.code).toBe("unavailable");
      expect(error.message).toContain(model.name);
      expect(await unreachable.live(options)).toBe(false);
      expect(await unreachable.ready(model.name, options)).toBe(false);
    });

    test("fails with 'timeout' at the deadline, and with 'cancelled' at the caller's signal", async () => {
      const silent = await silentServer();
      try {
        const mute = other(openSilent(silent.port));
        const late = await rejection(mute.infer(model.name, [inputOf(1)], { timeoutMs: 200 }));
        expect(late.code).toBe("timeout");
        expect(late.message).toBe(
          `[timeout] ${model.name}: no response from ${mute.target} in 200 ms`,
        );
        expect(await mute.live({ timeoutMs: 100 })).toBe(false);

        const controller = new AbortController();
        const call = mute.infer(model.name, [inputOf(1)], {
          ...options,
          signal: controller.signal,
        });
        setTimeout(() => controller.abort(), 20);
        expect((await rejection(call)).code).toBe("cancelled");
        const early = { ...options, signal: AbortSignal.abort() };
        expect((await rejection(mute.infer(model.name, [inputOf(1)], early))).code).toBe(
          "cancelled",
        );
      } finally {
        await silent.stop();
      }
    });

    test("fails with 'unavailable' after close", async () => {
      const closed = open();
      await closed.infer(model.name, [inputOf(1)], options);
      await closed.close();
      await closed.close();
      expect((await rejection(closed.infer(model.name, [inputOf(1)], options))).code).toBe(
        "unavailable",
      );
    });
  });
}

/** Small image file, different for each index. */
function picture(index: number): Uint8Array {
  const rgb = new Uint8Array(16 * 16 * 3).fill((index * 31) % 256, 0, 16 * 8 * 3);
  for (let at = 16 * 8 * 3; at < rgb.length; at += 1) rgb[at] = (at * (index + 1)) % 251;
  return pngOf(16, 16, rgb);
}

/** Accepts connections and never responds. */
function silentServer(): Promise<TestListener> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).resume();
  });
  return listen(server).then((listener) => ({
    ...listener,
    stop() {
      for (const socket of sockets) socket.destroy();
      return listener.stop();
    },
  }));
}
