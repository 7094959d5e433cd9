import { z } from "zod";
import type { CheckResult } from "../../bench/record/record.ts";
import { type EncodedImage, multipart } from "../../bench/run/embed-requests.ts";
import { type HttpRequest, jsonOf, reason } from "../../bench/run/http-client.ts";
import { inputTensor } from "../../bench/run/infer.ts";
import { cycle, type Reference } from "../../bench/run/reference.ts";
import {
  checkEachEndpoint,
  type EndpointTarget,
  type ServiceUnderTest,
} from "../../bench/run/service-under-test.ts";
import { TritonError } from "../../client/triton/transport.ts";
import {
  type EmbedErrorCode,
  embedErrorResponse,
  embedErrorStatus,
  embedPaths,
  maxImagesPerRequest,
} from "../../contract/embed-api.ts";
import { imageElements, openclipVitB32 } from "../../contract/model-signature.ts";
import type { Tensor } from "../../contract/tensor.ts";

const timeoutMs = 30_000;

/** Malformed requests on every path: each gets the promised error, and the service still answers afterwards. */
export function checkErrors(
  service: ServiceUnderTest,
  reference: Reference,
): Promise<readonly CheckResult[]> {
  return checkEachEndpoint(service, "errors", async (target) => {
    const findings =
      target.endpoint.protocol === "embed-http"
        ? await embedFindings(service, target.url, reference)
        : await inferenceFindings(service, target);
    const wrong = findings.filter((finding) => finding.problem !== undefined);
    return {
      outcome: wrong.length === 0 ? "pass" : "fail",
      message:
        wrong.length === 0
          ? `${findings.length} malformed requests: ${findings.map((f) => f.name).join(", ")}`
          : wrong.map(({ name, problem }) => `${name}: ${problem}`).join("; "),
      measured: { requests: findings.length, wrong: wrong.length },
    };
  });
}

interface Finding {
  readonly name: string;
  /** What is wrong with the answer; absent when it is as promised. */
  readonly problem?: string;
}

interface EmbedMistake {
  readonly name: string;
  readonly url: string;
  readonly request: HttpRequest;
  readonly code: EmbedErrorCode;
  /** Index of the image at fault. */
  readonly image?: number;
}

/** Malformed requests to the embed API, each with the error it must get. */
export function embedMistakes(url: string, good: EncodedImage): readonly EmbedMistake[] {
  const embed = `${url}${embedPaths.embed}`;
  const base64 = `${url}${embedPaths.embedBase64}`;
  const json = { "content-type": "application/json" };
  const noise = Buffer.from("this is not an image");
  const encoded = Buffer.from(good.bytes).toString("base64");
  // how a JPEG begins, and then not
  const broken = Buffer.concat([Buffer.of(0xff, 0xd8, 0xff, 0xe0), noise]);
  return [
    {
      name: "multipart without images",
      url: embed,
      request: { body: multipart([]) },
      code: "bad_request",
    },
    {
      name: "broken JSON",
      url: base64,
      request: { headers: json, body: '{"images":[' },
      code: "bad_request",
    },
    {
      name: "no images",
      url: base64,
      request: { headers: json, body: JSON.stringify({ images: [] }) },
      code: "bad_request",
    },
    {
      name: "broken base64",
      url: base64,
      request: { headers: json, body: JSON.stringify({ images: [encoded, "?not base64?"] }) },
      code: "bad_request",
      image: 1,
    },
    {
      name: `${maxImagesPerRequest + 1} images`,
      url: embed,
      request: { body: multipart(Array(maxImagesPerRequest + 1).fill(good)) },
      code: "too_large",
    },
    {
      name: "text instead of an image",
      url: embed,
      request: { headers: { "content-type": "text/plain" }, body: "hello" },
      code: "unsupported_media_type",
    },
    {
      name: "bytes of no image format",
      url: embed,
      request: { headers: { "content-type": "image/jpeg" }, body: noise },
      code: "unsupported_media_type",
      image: 0,
    },
    {
      name: "an image that cannot be decoded",
      url: embed,
      request: { headers: { "content-type": "image/jpeg" }, body: broken },
      code: "undecodable_image",
      image: 0,
    },
    {
      name: "a broken image after a good one",
      url: embed,
      request: { body: multipart([good, { bytes: broken, contentType: "image/jpeg" }]) },
      code: "undecodable_image",
      image: 1,
    },
    { name: "an unknown path", url: `${url}/no-such-path`, request: {}, code: "not_found" },
  ];
}

/** Where a key is asked for, another one must not do. */
function keyMistake(url: string, good: EncodedImage): EmbedMistake {
  return {
    name: "another key",
    url: `${url}${embedPaths.embed}`,
    request: { headers: { authorization: "Bearer not-this-key" }, body: multipart([good]) },
    code: "unauthorized",
  };
}

async function embedFindings(
  service: ServiceUnderTest,
  url: string,
  reference: Reference,
): Promise<readonly Finding[]> {
  const [good] = cycle(reference, 1);
  if (good === undefined) return [];
  const findings: Finding[] = [];
  const mistakes = [
    ...embedMistakes(url, good),
    ...(service.apiKey === undefined ? [] : [keyMistake(url, good)]),
  ];
  for (const mistake of mistakes) {
    try {
      const answer = await service.http.send(mistake.url, { ...mistake.request, timeoutMs });
      const problem = embedProblem(answer.status, jsonOf(answer), mistake);
      findings.push({ name: mistake.name, problem });
    } catch (error) {
      findings.push({ name: mistake.name, problem: reason(error) });
    }
  }
  return findings;
}

function embedProblem(status: number, body: unknown, expected: EmbedMistake): string | undefined {
  const wanted = embedErrorStatus[expected.code];
  if (status !== wanted) return `must get ${wanted} ${expected.code}, got ${status}`;
  const parsed = embedErrorResponse.safeParse(body);
  if (!parsed.success) return `${status} without {"error":{"code","message"}}`;
  const { code, image } = parsed.data.error;
  if (code !== expected.code) return `must get code ${expected.code}, got ${code}`;
  if (image !== expected.image) return `must name image ${expected.image}, got ${image ?? "none"}`;
  return undefined;
}

interface InferenceMistake {
  readonly name: string;
  readonly model?: string;
  readonly inputs: readonly Tensor[];
  /** What the message must say, as Triton does. */
  readonly message: RegExp;
  /**
   * Statuses that are right, as the transports name them in their messages.
   *
   * @default 400, INVALID_ARGUMENT
   */
  readonly status?: RegExp;
}

const invalidArgument = /\((?:HTTP 400|gRPC INVALID_ARGUMENT) /;
/** Releases of Triton differ. */
const notFound = /\((?:HTTP 40[04]|gRPC NOT_FOUND) /;

/** Malformed inferences, each with the message that Triton has for it. */
export function inferenceMistakes(): readonly InferenceMistake[] {
  const one = new Float32Array(imageElements);
  const good = inputTensor(one, 1);
  const tooMany = openclipVitB32.maxBatchSize + 1;
  return [
    {
      name: "wrong shape",
      inputs: [{ ...good, shape: [1, 3, 16, 16], data: one.subarray(0, 3 * 16 * 16) }],
      message: /unexpected shape for input/i,
    },
    {
      name: `batch of ${tooMany}`,
      inputs: [inputTensor(new Float32Array(imageElements * tooMany), tooMany)],
      message: /batch-size must be <=/i,
    },
    {
      name: "wrong data type",
      inputs: [
        {
          name: good.name,
          dataType: "UINT8",
          shape: good.shape,
          data: new Uint8Array(imageElements),
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
  service: ServiceUnderTest,
  target: EndpointTarget,
): Promise<readonly Finding[]> {
  const transport = service.transport(target);
  const findings: Finding[] = [];
  for (const { name, model, inputs, message, status = invalidArgument } of inferenceMistakes()) {
    try {
      await transport.infer(model ?? service.workload.service.model, inputs, { timeoutMs });
      findings.push({ name, problem: "must be rejected, was answered" });
    } catch (error) {
      if (!(error instanceof TritonError) || error.code !== "rejected") {
        findings.push({ name, problem: `must be rejected, got ${reason(error)}` });
      } else if (!message.test(error.message)) {
        findings.push({ name, problem: `must say ${message.source}, says ${error.message}` });
      } else if (!status.test(error.message)) {
        findings.push({ name, problem: `must get ${status.source}, says ${error.message}` });
      } else {
        findings.push({ name });
      }
    }
  }
  if (target.endpoint.protocol === "oip-http") findings.push(await brokenJson(service, target));
  if (!(await transport.ready(service.workload.service.model, { timeoutMs }))) {
    findings.push({ name: "ready afterwards", problem: "the model is not ready any more" });
  }
  return findings;
}

/** No client of ours sends it: JSON that ends in the middle. */
async function brokenJson(service: ServiceUnderTest, { url }: EndpointTarget): Promise<Finding> {
  const name = "broken JSON";
  try {
    const path = `${url}/v2/models/${service.workload.service.model}/infer`;
    const headers = { "content-type": "application/json" };
    const answer = await service.http.send(path, { headers, body: '{"inputs":[', timeoutMs });
    if (answer.status !== 400) return { name, problem: `must get 400, got ${answer.status}` };
    const isRight = oipError.safeParse(jsonOf(answer)).success;
    return isRight ? { name } : { name, problem: '400 without {"error":"…"}' };
  } catch (error) {
    return { name, problem: reason(error) };
  }
}

const oipError = z.object({ error: z.string().min(1) });
