/** Public API of @clipstack/client. */

export { maxImagesPerRequest } from "../contract/embed-api.ts";
export type { ModelSpec } from "../contract/model-spec.ts";
export { defaultModel, modelCatalogue } from "../contract/models/index.ts";
export type {
  BytesTensor,
  DataType,
  Fp32Tensor,
  Tensor,
  TensorSpec,
  Uint8Tensor,
} from "../contract/tensor.ts";
export { clientOptionsFromEnv } from "./embedding/client-env.ts";
export { ClientError, type ClientErrorCode } from "./embedding/client-error.ts";
export type { ClientModel } from "./embedding/client-model.ts";
export {
  type EmbedClientOptions,
  type ExpectedFingerprints,
  openEmbedClient,
} from "./embedding/embed-client.ts";
export {
  type ClientBackend,
  type ClientMode,
  clientBackends,
  clientModes,
  type InferenceClient,
  type InferenceClientOptions,
  openInferenceClient,
} from "./embedding/inference-client.ts";
export type { RemoteEmbedder } from "./embedding/remote-embedder.ts";
export {
  openTritonEmbedder,
  type TritonEmbedderOptions,
} from "./embedding/triton-embedder.ts";
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
