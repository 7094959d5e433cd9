# One pod with the all-in-one image: a container, not a machine with Docker.

terraform {
  required_version = ">= 1.5"
  required_providers {
    runpod = { source = "runpod/runpod", version = "~> 2.0" }
  }
}

variable "image" {
  description = "All-in-one image, as `clipstack launch-spec` prints it."
  type        = string
}

variable "gpu" {
  type    = string
  default = "NVIDIA GeForce RTX 4090"
}

variable "api_key" {
  description = "Key that clients send."
  type        = string
  sensitive   = true
}

# The token is in RUNPOD_API_KEY.
provider "runpod" {}

resource "runpod_pod" "machine" {
  name  = "clipstack"
  image = var.image
  gpu   = { id = var.gpu, count = 1 }
  disk  = 60 # GB
  ports = ["8002/http"]
  env   = { API_KEY = var.api_key }
}

output "url" {
  description = "Address for `clipstack verify --url embed-http=…`."
  value       = "https://${runpod_pod.machine.id}-8002.proxy.runpod.net"
}
