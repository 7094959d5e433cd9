import { z } from "zod";
import type { CheckResult } from "../../bench/record/record.ts";
import { TritonError } from "../../client/triton/transport.ts";
import {
  type EmbedErrorCode,
  embedErrorResponse,
  embedErrorStatus,
  embedPaths,
  maxImagesPerRequest,
  maxTextLength,
  maxTextsPerRequest,
} from "../../contract/embed-api.ts";
import {
  imageTowerOf,
  normalisedImage,
  textTowerOf,
  tokenIds,
} from "../../contract/model-shapes.ts";
import type { ModelTower } from "../../contract/model-spec.ts";
import { elementArrays, elementCount, type Tensor } from "../../contract/tensor.ts";
import type { Samples } from "../../target/reference/references.ts";
import { type EncodedImage, multipart } from "../../target/requests/embed-requests.ts";
import { type HttpRequest, jsonOf, reason } from "../../target/requests/http-client.ts";
import { loadImages } from "../../target/requests/load-items.ts";
import {
  type EndpointTarget,
  firstTowersOf,
  type TargetService,
} from "../../target/service/target-service.ts";
import { type Check, itemsOf, ownKinds } from "./check.ts";
import { checkEachEndpoint } from "./check-result.ts";

const timeoutMs = 30_000;

export const errorsCheck: Check = {
  name: "errors",
  question: "Does malformed input get the specified error?",
  sendsRequests: true,
  kinds: ownKinds,
  runService: checkErrors,
};

/** Sends malformed requests to every endpoint: each gets the specified error, and the service stays ready. */
export function checkErrors(
  service: TargetService,
  samples: Samples,
): Promise<readonly CheckResult[]> {
  const check = async (target: EndpointTarget) => {
    const findings =
      target.endpoint.protocol === "embed-http"
        ? await embedFindings(service, target, samples)
        : await inferenceFindings(service, target);
    const wrong = findings.filter((finding) => finding.problem !== undefined);
    return {
      outcome: wrong.length === 0 ? "pass" : "fail",
      message:
        wrong.length === 0
          ? `${findings.length} malformed requests: ${findings.map((f) => f.name).join(", ")}`
          : wrong.map(({ name, problem }) => `${name}: ${problem}`).join("; "),
      measured: { requests: findings.length, wrong: wrong.length },
    } as const;
  };
  return checkEachEndpoint(service, "errors", check, firstTowersOf(service));
}

interface Finding {
  readonly name: string;
  /** Deviation of the response from the specification; absent if there is none. */
  readonly problem?: string;
}

interface MalformedRequest {
  readonly name: string;
  readonly path: string;
  readonly request: HttpRequest;
  readonly code: EmbedErrorCode;
  /** Index of the faulty image. */
  readonly image?: number;
  /** Index of the faulty text. */
  readonly text?: number;
}

function malformedImages(good: EncodedImage): readonly MalformedRequest[] {
  const noise = Buffer.from("this is not an image");
  // JPEG header followed by noise
  const broken = Buffer.concat([Buffer.of(0xff, 0xd8, 0xff, 0xe0), noise]);
  const uploads: readonly Omit<MalformedRequest, "path">[] = [
    { name: "multipart without images", request: { body: multipart([]) }, code: "bad_request" },
    {
      name: `${maxImagesPerRequest + 1} images`,
      request: { body: multipart(Array(maxImagesPerRequest + 1).fill(good)) },
      code: "too_large",
    },
    {
      name: "text instead of an image",
      request: { headers: { "content-type": "text/plain" }, body: "hello" },
      code: "unsupported_media_type",
    },
    {
      name: "bytes of no image format",
      request: { headers: { "content-type": "image/jpeg" }, body: noise },
      code: "unsupported_media_type",
      image: 0,
    },
    {
      name: "an image that cannot be decoded",
      request: { headers: { "content-type": "image/jpeg" }, body: broken },
      code: "undecodable_image",
      image: 0,
    },
    {
      name: "a broken image after a good one",
      request: { body: multipart([good, { bytes: broken, contentType: "image/jpeg" }]) },
      code: "undecodable_image",
      image: 1,
    },
  ];
  return [
    ...uploads.map((upload) => ({ ...upload, path: embedPaths.embed })),
    ...malformedJson(good),
  ];
}

const unknownPath: MalformedRequest = {
  name: "an unknown path",
  path: "/no-such-path",
  request: {},
  code: "not_found",
};

function malformedTexts(): readonly MalformedRequest[] {
  const bodies = [
    { name: "broken JSON of texts", body: '{"texts":[', code: "bad_request" },
    { name: "no texts", body: JSON.stringify({ texts: [] }), code: "bad_request" },
    {
      name: `${maxTextsPerRequest + 1} texts`,
      body: JSON.stringify({ texts: Array(maxTextsPerRequest + 1).fill("text") }),
      code: "too_large",
    },
    {
      name: "a number after a text",
      body: JSON.stringify({ texts: ["text", 1] }),
      code: "bad_request",
      text: 1,
    },
    {
      name: "too long a text",
      body: JSON.stringify({ texts: ["a".repeat(maxTextLength + 1)] }),
      code: "too_large",
      text: 0,
    },
  ] as const;
  return bodies.map(({ body, ...rest }) => ({
    ...rest,
    path: embedPaths.embedText,
    request: jsonRequest(body),
  }));
}

const jsonRequest = (body: string): HttpRequest => ({
  headers: { "content-type": "application/json" },
  body,
});

function malformedJson(good: EncodedImage): readonly MalformedRequest[] {
  const images = [Buffer.from(good.bytes).toString("base64"), "?not base64?"];
  const bodies = [
    { name: "broken JSON", body: '{"images":[' },
    { name: "no images", body: JSON.stringify({ images: [] }) },
    { name: "broken base64", body: JSON.stringify({ images }), image: 1 },
  ];
  return bodies.map(({ body, ...rest }) => ({
    ...rest,
    path: embedPaths.embedBase64,
    request: jsonRequest(body),
    code: "bad_request",
  }));
}

function wrongKeyRequest({ path, request }: MalformedRequest): MalformedRequest {
  const headers = { ...request.headers, authorization: "Bearer not-this-key" };
  return { name: "wrong API key", path, request: { ...request, headers }, code: "unauthorized" };
}

async function embedFindings(
  service: TargetService,
  target: EndpointTarget,
  samples: Samples,
): Promise<readonly Finding[]> {
  const { url, spec } = target;
  const findings: Finding[] = [];
  const malformed = [
    ...loadImages(itemsOf(samples, target, 1)).flatMap(malformedImages),
    ...(spec.towers.text === undefined ? [] : malformedTexts()),
    unknownPath,
  ];
  if (service.apiKey !== undefined) malformed.push(...malformed.slice(0, 1).map(wrongKeyRequest));
  for (const { name, path, request, ...expected } of malformed) {
    try {
      const response = await service.http.send(`${url}${path}`, { ...request, timeoutMs });
      findings.push({ name, problem: embedProblem(response.status, jsonOf(response), expected) });
    } catch (error) {
      findings.push({ name, problem: reason(error) });
    }
  }
  return findings;
}

function embedProblem(
  status: number,
  body: unknown,
  expected: Pick<MalformedRequest, "code" | "image" | "text">,
): string | undefined {
  const expectedStatus = embedErrorStatus[expected.code];
  if (status !== expectedStatus)
    return `must get ${expectedStatus} ${expected.code}, got ${status}`;
  const parsed = embedErrorResponse.safeParse(body);
  if (!parsed.success) return `${status} without {"error":{"code","message"}}`;
  const { code } = parsed.data.error;
  if (code !== expected.code) return `must get code ${expected.code}, got ${code}`;
  for (const modality of ["image", "text"] as const) {
    const index = parsed.data.error[modality];
    if (index === expected[modality]) continue;
    return `must name ${modality} ${expected[modality] ?? "none"}, got ${index ?? "none"}`;
  }
  return undefined;
}

interface MalformedInference {
  readonly name: string;
  readonly model?: string;
  readonly inputs: readonly Tensor[];
  /** Pattern of Triton's message. */
  readonly message: RegExp;
  /**
   * Pattern of the status in the transport's message.
   *
   * @default 400, INVALID_ARGUMENT
   */
  readonly status?: RegExp;
}

const invalidArgument = /\((?:HTTP 400|gRPC INVALID_ARGUMENT) /;
/** Status of an unknown model, which depends on the release of Triton. */
const notFound = /\((?:HTTP 40[04]|gRPC NOT_FOUND) /;

function malformedInferences({ spec, modality }: ModelTower): readonly MalformedInference[] {
  const { name, dataType, dims } =
    modality === "text" ? tokenIds(textTowerOf(spec)) : normalisedImage(imageTowerOf(spec));
  const elements = elementCount(dims);
  const zeros = (batch: number, shape = dims) =>
    ({
      name,
      dataType,
      shape: [batch, ...shape],
      data: new elementArrays[dataType as "FP32"](batch * elementCount(shape)),
    }) as Tensor;
  const good = zeros(1);
  const tooMany = spec.batching.maximum + 1;
  return [
    {
      name: "wrong shape",
      inputs: [zeros(1, [...dims.slice(0, -1), 1])],
      message: /unexpected shape for input/i,
    },
    {
      name: `batch of ${tooMany}`,
      inputs: [zeros(tooMany)],
      message: /batch-size must be <=/i,
    },
    {
      name: "wrong data type",
      inputs: [
        {
          name: good.name,
          dataType: "UINT8",
          shape: good.shape,
          data: new Uint8Array(elements),
        },
      ],
      message: /data-?type/i,
    },
    {
      name: "unknown input",
      inputs: [{ ...good, name: `${good.name}e` }],
      message: /unexpected inference input/i,
    },
    {
      name: "unknown model",
      model: "no_such_model",
      inputs: [good],
      message: /unknown model|not found/i,
      status: notFound,
    },
  ];
}

async function inferenceFindings(
  service: TargetService,
  target: EndpointTarget,
): Promise<readonly Finding[]> {
  const transport = service.transport(target);
  const findings: Finding[] = [];
  for (const { name, model, inputs, message, status = invalidArgument } of malformedInferences(
    target,
  )) {
    try {
      await transport.infer(model ?? target.model, inputs, { timeoutMs });
      findings.push({ name, problem: "must be rejected, got a response" });
    } catch (error) {
      if (!(error instanceof TritonError) || error.code !== "rejected") {
        findings.push({ name, problem: `must be rejected, got ${reason(error)}` });
      } else if (!message.test(error.message)) {
        findings.push({
          name,
          problem: `message must match ${message.source}, got ${error.message}`,
        });
      } else if (!status.test(error.message)) {
        findings.push({
          name,
          problem: `status must match ${status.source}, got ${error.message}`,
        });
      } else {
        findings.push({ name });
      }
    }
  }
  if (target.endpoint.protocol === "oip-http") findings.push(await brokenJson(service, target));
  if (!(await transport.ready(target.model, { timeoutMs }))) {
    findings.push({ name: "ready afterwards", problem: "the model must stay ready" });
  }
  return findings;
}

/** Sends truncated JSON, which the transports cannot send. */
async function brokenJson(
  service: TargetService,
  { url, model }: EndpointTarget,
): Promise<Finding> {
  const name = "broken JSON";
  try {
    const path = `${url}/v2/models/${model}/infer`;
    const headers = { "content-type": "application/json" };
    const response = await service.http.send(path, { headers, body: '{"inputs":[', timeoutMs });
    if (response.status !== 400) return { name, problem: `must get 400, got ${response.status}` };
    const isValid = oipError.safeParse(jsonOf(response)).success;
    return isValid ? { name } : { name, problem: '400 without {"error":"…"}' };
  } catch (error) {
    return { name, problem: reason(error) };
  }
}

const oipError = z.object({ error: z.string().min(1) });
