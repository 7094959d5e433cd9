import { writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { onnxMessage } from "./proto.ts";
import { type OnnxModel, onnxChunks } from "./writer.ts";

interface Tensor {
  raw_data: Uint8Array;
  data_location?: number;
  external_data?: { key: string; value: string }[];
}

/**
 * Writes a model for tests with its tensors above 1 KiB in another file next to it.
 *
 * @param location - Path of the data file as recorded in the model.
 * @returns Size of the data file in bytes.
 */
export async function writeWithExternalData(
  model: OnnxModel,
  file: string,
  location = "weights.bin",
): Promise<number> {
  const type = onnxMessage("ModelProto");
  const whole = Buffer.concat(Array.from(onnxChunks(model), (chunk) => Buffer.from(chunk)));
  const message = type.decode(whole) as unknown as { graph: { initializer: Tensor[] } };
  const weights: Uint8Array[] = [];
  let offset = 0;
  for (const tensor of message.graph.initializer) {
    const { length } = tensor.raw_data;
    if (length < 1024) continue;
    weights.push(Uint8Array.from(tensor.raw_data));
    const entries = Object.entries({ location, offset, length });
    tensor.external_data = entries.map(([key, value]) => ({ key, value: String(value) }));
    tensor.data_location = 1;
    delete (tensor as Partial<Tensor>).raw_data;
    offset += length;
  }
  await writeFile(file, type.encode(message as object).finish());
  await writeFile(join(dirname(file), basename(location)), weights);
  return offset;
}
