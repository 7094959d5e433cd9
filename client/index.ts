/** Public API of @clipstack/client. */

export type { ModelSpec } from "../contract/model-spec.ts";
export type {
  BytesTensor,
  DataType,
  Fp32Tensor,
  Tensor,
  TensorSpec,
  Uint8Tensor,
} from "../contract/tensor.ts";
export { clientOptionsFromEnv } from "./client-env.ts";
export { ClientError, type ClientErrorCode } from "./client-error.ts";
export type { ClientModel } from "./client-model.ts";
export {
  type EmbedClientOptions,
  type ExpectedFingerprints,
  openEmbedClient,
} from "./embed-client.ts";
export {
  type ClientBackend,
  type ClientMode,
  type InferenceClient,
  type InferenceClientOptions,
  openInferenceClient,
} from "./inference-client.ts";
export type { RemoteEmbedder } from "./remote-embedder.ts";
export {
  type GrpcSecurity,
  type GrpcTransportOptions,
  openGrpcTransport,
} from "./triton/grpc-transport.ts";
export { type HttpTransportOptions, openHttpTransport } from "./triton/http-transport.ts";
export type { GrpcTls } from "./triton/http2-connection.ts";
export {
  type CallOptions,
  type InferCallOptions,
  type ModelMetadata,
  type ModelStatistics,
  type ServerMetadata,
  type Transport,
  TritonError,
  type TritonErrorCode,
} from "./triton/transport.ts";
export {
  openTritonEmbedder,
  type TritonEmbedderOptions,
} from "./triton-embedder.ts";
