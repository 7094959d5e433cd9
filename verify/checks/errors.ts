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
import type { Check } from "./check.ts";

const timeoutMs = 30_000;

export const errorsCheck: Check = {
  name: "errors",
  question: "Does malformed input get the specified error?",
  passes: {
    simulation:
      "each malformed request gets the specified status and code, and the service stays ready",
    deployed: "as in the simulation; if an API key is required, a wrong one gets 401",
  },
  sendsRequests: true,
  runService: (service, { reference }) => checkErrors(service, reference),
};

/** Sends malformed requests to every endpoint: each gets the specified error, and the service stays ready. */
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
}

function malformedRequests(good: EncodedImage): readonly MalformedRequest[] {
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
    { name: "an unknown path", path: "/no-such-path", request: {}, code: "not_found" },
  ];
}

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
    request: { headers: { "content-type": "application/json" }, body },
    code: "bad_request",
  }));
}

function wrongKeyRequest(good: EncodedImage): MalformedRequest {
  return {
    name: "wrong API key",
    path: embedPaths.embed,
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
  const malformed = [
    ...malformedRequests(good),
    ...(service.apiKey === undefined ? [] : [wrongKeyRequest(good)]),
  ];
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
  expected: Pick<MalformedRequest, "code" | "image">,
): string | undefined {
  const expectedStatus = embedErrorStatus[expected.code];
  if (status !== expectedStatus)
    return `must get ${expectedStatus} ${expected.code}, got ${status}`;
  const parsed = embedErrorResponse.safeParse(body);
  if (!parsed.success) return `${status} without {"error":{"code","message"}}`;
  const { code, image } = parsed.data.error;
  if (code !== expected.code) return `must get code ${expected.code}, got ${code}`;
  if (image !== expected.image) return `must name image ${expected.image}, got ${image ?? "none"}`;
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

function malformedInferences(): readonly MalformedInference[] {
  const pixels = new Float32Array(imageElements);
  const good = inputTensor(pixels, 1);
  const tooMany = openclipVitB32.maxBatchSize + 1;
  return [
    {
      name: "wrong shape",
      inputs: [{ ...good, shape: [1, 3, 16, 16], data: pixels.subarray(0, 3 * 16 * 16) }],
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
  for (const { name, model, inputs, message, status = invalidArgument } of malformedInferences()) {
    try {
      await transport.infer(model ?? service.workload.service.model, inputs, { timeoutMs });
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
  if (!(await transport.ready(service.workload.service.model, { timeoutMs }))) {
    findings.push({ name: "ready afterwards", problem: "the model must stay ready" });
  }
  return findings;
}

/** Sends truncated JSON, which the transports cannot send. */
async function brokenJson(service: ServiceUnderTest, { url }: EndpointTarget): Promise<Finding> {
  const name = "broken JSON";
  try {
    const path = `${url}/v2/models/${service.workload.service.model}/infer`;
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
