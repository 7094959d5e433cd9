# One pod with the all-in-one image: a container, not a machine with Docker.

terraform {
  required_version = ">= 1.5"
  required_providers {
    runpod = { source = "runpod/runpod", version = "~> 1.0" }
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

variable "hours" {
  description = "Time limit of the rental."
  type        = number
  default     = 8
  validation {
    condition     = var.hours >= 1 && floor(var.hours) == var.hours
    error_message = "hours must be a whole number of at least 1."
  }
}

variable "api_key" {
  description = "Key that clients send."
  type        = string
  sensitive   = true
}

# The token is in RUNPOD_API_KEY.
provider "runpod" {}

resource "runpod_pod" "machine" {
  name                 = "clipstack"
  image_name           = var.image
  gpu_type_id          = var.gpu
  gpu_count            = 1
  cloud_type           = "SECURE"
  container_disk_in_gb = 60
  ports                = "8002/http"
  env                  = ["API_KEY=${var.api_key}"]
  terminate_after      = timeadd(plantimestamp(), "${var.hours}h")
  lifecycle {
    ignore_changes = [terminate_after] # counted from the creation
  }
}

output "url" {
  description = "Address for `clipstack verify --url embed-http=…`."
  value       = "https://${runpod_pod.machine.id}-8002.proxy.runpod.net"
}
