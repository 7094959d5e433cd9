# One Linode with a GPU. A Linode is billed until it is deleted, so it deletes itself when its time is over.

terraform {
  required_version = ">= 1.5"
  required_providers {
    linode = { source = "linode/linode", version = "~> 3.0" }
  }
}

variable "region" {
  type    = string
  default = "us-ord"
}

variable "type" {
  type    = string
  default = "g2-gpu-rtx4000a1-s" # one RTX 4000 Ada
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

variable "ssh_key" {
  description = "Public SSH key of the deploying machine."
  type        = string
}

variable "ssh_from" {
  description = "Addresses that may connect with SSH, such as 198.51.100.7/32."
  type        = string
}

variable "delete_token" {
  description = "API token with which the machine deletes itself: scope linodes:read_write, expiry soon after the time limit."
  type        = string
  sensitive   = true
}

# The token is in LINODE_TOKEN.
provider "linode" {}

resource "linode_instance" "machine" {
  region           = var.region
  type             = var.type
  image            = "linode/ubuntu24.04"
  authorized_keys  = [trimspace(var.ssh_key)]
  watchdog_enabled = false
  metadata {
    user_data = base64encode(templatefile("${path.module}/../first-boot.sh.tftpl", {
      hours       = var.hours
      user        = "root"
      end_command = <<-EOT
        metadata=http://169.254.169.254/v1
        token=\$(curl -fsS -X PUT -H 'Metadata-Token-Expiry-Seconds: 60' \$metadata/token)
        id=\$(curl -fsS -H "Metadata-Token: \$token" -H 'Accept: application/json' \$metadata/instance | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
        curl -fsS -X DELETE -H 'Authorization: Bearer ${var.delete_token}' "https://api.linode.com/v4/linode/instances/\$id"
      EOT
    }))
  }
}

resource "linode_firewall" "ssh" {
  label           = "clipstack-${linode_instance.machine.id}"
  inbound_policy  = "DROP"
  outbound_policy = "ACCEPT"
  linodes         = [linode_instance.machine.id]
  inbound {
    label    = "ssh"
    action   = "ACCEPT"
    protocol = "TCP"
    ports    = "22"
    ipv4     = [var.ssh_from]
  }
}

output "ssh_config" {
  description = "Entry of ~/.ssh/config for `host.docker: ssh://rented`."
  value       = <<-EOT
    Host rented
      HostName ${tolist(linode_instance.machine.ipv4)[0]}
      User root
      StrictHostKeyChecking accept-new
      UserKnownHostsFile ~/.ssh/known_hosts.${linode_instance.machine.id}
  EOT
}
