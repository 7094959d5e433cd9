// docker buildx bake                         the embed server's image for this machine
// docker buildx bake all                     every image
// docker buildx bake embed-release --push    the embed server's image for amd64 and arm64, to REGISTRY
// WEIGHTS=image docker buildx bake triton    with the weights of model_repository
// Images and settings: docs/images.md.

variable "PACKAGE" { default = "." } // folder of this file; in the published package: node_modules/clipstack
variable "REGISTRY" { default = "" } // including the slash: `ghcr.io/owner/`
variable "VERSION" { default = "0.1.0" }
variable "REVISION" { default = "unknown" } // `git rev-parse HEAD`
variable "NODE_IMAGE" { default = "node:24.21.0-bookworm-slim" }
variable "CUDA_IMAGE" { default = "nvidia/cuda:12.9.1-cudnn-runtime-ubuntu24.04" }
variable "TRITON_IMAGE" { default = "nvcr.io/nvidia/tritonserver:26.07-py3" }
variable "WEIGHTS" { default = "none" }
variable "MODELS" { default = "openclip-vit-b32:image" } // as in the settings of the embed server
variable "MODEL_PRECISION" { default = "fp32" } // for embed-weights
// architecture of this machine; the containers are always Linux
variable "PLATFORM" { default = regex_replace(BAKE_LOCAL_PLATFORM, "^[a-z]+/", "linux/") }

group "default" { targets = ["embed"] }
group "all" { targets = ["embed", "embed-gpu", "embed-weights", "triton", "all-in-one", "all-in-one-emulator"] }

target "_common" {
  args = { VERSION = VERSION, REVISION = REVISION }
}

target "embed" {
  inherits   = ["_common"]
  context    = PACKAGE
  dockerfile = "inference-image/Dockerfile"
  args       = { NODE_IMAGE = NODE_IMAGE }
  tags       = ["${REGISTRY}clipstack/embed:cpu", "${REGISTRY}clipstack/embed:${VERSION}-cpu"]
  platforms  = [PLATFORM]
}

// several platforms require a builder with the docker-container driver
target "embed-release" {
  inherits  = ["embed"]
  platforms = ["linux/amd64", "linux/arm64"]
}

target "embed-gpu" {
  inherits   = ["_common"]
  context    = PACKAGE
  dockerfile = "inference-image/Dockerfile.gpu"
  args       = { NODE_IMAGE = NODE_IMAGE, CUDA_IMAGE = CUDA_IMAGE }
  tags       = ["${REGISTRY}clipstack/embed:gpu", "${REGISTRY}clipstack/embed:${VERSION}-gpu"]
  platforms  = ["linux/amd64"]
}

target "embed-weights" {
  context    = "model_repository"
  dockerfile = "image/Dockerfile.weights"
  contexts   = { "clipstack/embed:cpu" = "target:embed" }
  args       = { IMAGE = "clipstack/embed:cpu", MODELS = MODELS, MODEL_PRECISION = MODEL_PRECISION }
  // the last two tags are used by the chart and its values files
  tags       = ["${REGISTRY}clipstack/embed:cpu-weights", "${REGISTRY}clipstack/embed:k8s-cpu", "${REGISTRY}clipstack/embed:${VERSION}-k8s-cpu"]
  platforms  = [PLATFORM]
}

// embed image with the tokenizer files of MODELS, for gateways to Triton images with the weights
target "gateway" {
  inherits = ["embed-weights"]
  args     = { WEIGHTS = "none" }
  tags     = ["${REGISTRY}clipstack/embed:${VERSION}-gateway"]
}

target "triton" {
  inherits   = ["_common"]
  context    = "model_repository"
  dockerfile = "image/Dockerfile.triton"
  args       = { TRITON_IMAGE = TRITON_IMAGE, WEIGHTS = WEIGHTS, MODELS = MODELS }
  tags       = ["${REGISTRY}clipstack/triton:${VERSION}"]
  platforms  = [PLATFORM]
}

target "all-in-one" {
  inherits   = ["_common"]
  context    = "model_repository"
  dockerfile = "image/Dockerfile.all-in-one"
  contexts   = { "clipstack/embed:cpu" = "target:embed" }
  args       = { EMBED_IMAGE = "clipstack/embed:cpu", TRITON_IMAGE = TRITON_IMAGE, TRITON_SERVER = "tritonserver", WEIGHTS = WEIGHTS, MODELS = MODELS }
  tags       = ["${REGISTRY}clipstack/all-in-one:${VERSION}"]
  platforms  = [PLATFORM]
}

target "all-in-one-emulator" {
  inherits = ["all-in-one"]
  args     = { TRITON_IMAGE = "clipstack/embed:cpu", TRITON_SERVER = "emulator" }
  tags     = ["${REGISTRY}clipstack/all-in-one:${VERSION}-emulator"]
}
