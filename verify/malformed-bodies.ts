import { imageTowerOf, normalisedImage, textTowerOf, tokenIds } from "../contract/model-shapes.ts";
import { protocolOf } from "../target/requests/server-protocol.ts";
import type { TargetEndpoint } from "../target/requests/target-endpoint.ts";

interface MalformedBody {
  readonly name: string;
  readonly body: string;
  /** @default - the route of embeddings */
  readonly path?: string;
}

/** Requests that a server of any kind must reject. */
export function malformedBodies(target: TargetEndpoint): readonly MalformedBody[] {
  const { endpoint, model } = target;
  const common = [
    { name: "broken JSON", body: '{"input":[' },
    { name: "an empty object", body: "{}" },
    { name: "an unknown route", body: "{}", path: "/no-such-route" },
  ];
  const protocol = protocolOf(endpoint);
  if (protocol === undefined) return [...common, ...malformedTensors(target)];
  const name = endpoint === "tei-http" ? "inputs" : "input";
  const withInput = (value: unknown) =>
    JSON.stringify({ ...(protocol.body([{ text: "text" }], model) as object), [name]: value });
  const broken = { bytes: Buffer.from("not an image"), contentType: "image/jpeg" };
  return [
    ...common,
    { name: "an empty list", body: withInput([]) },
    { name: "an object without fields as input", body: withInput([{}]) },
    ...(target.modality === "image"
      ? [
          {
            name: "an image that cannot be decoded",
            body: JSON.stringify(protocol.body([broken], model)),
          },
        ]
      : []),
    ...(endpoint === "tei-http"
      ? []
      : [
          {
            name: "an unknown model",
            body: JSON.stringify(protocol.body([{ text: "text" }], "no-such-model")),
          },
        ]),
  ];
}

function malformedTensors({ spec, modality, model }: TargetEndpoint): readonly MalformedBody[] {
  const { name, dataType, dims } =
    modality === "text" ? tokenIds(textTowerOf(spec)) : normalisedImage(imageTowerOf(spec));
  const infer = (input: object, of = model) => ({
    body: JSON.stringify({
      inputs: [{ name, datatype: dataType, shape: [1, 1], data: [0], ...input }],
    }),
    path: `/v2/models/${encodeURIComponent(of)}/infer`,
  });
  return [
    { name: "a wrong shape", ...infer({ shape: [1, ...dims, 1] }) },
    { name: "a wrong data type", ...infer({ datatype: "BOOL", data: [true] }) },
    { name: "an unknown input", ...infer({ name: `${name}e` }) },
    { name: "an unknown model", ...infer({}, "no_such_model") },
  ];
}
