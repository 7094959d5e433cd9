# One EC2 instance with a GPU. It terminates itself when its time is over, and its disk with it.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = { source = "hashicorp/aws", version = "~> 6.0" }
  }
}

variable "region" {
  type    = string
  default = "us-east-1"
}

variable "instance_type" {
  type    = string
  default = "g6.xlarge" # one L4
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

provider "aws" {
  region = var.region
}

# NVIDIA's driver, Docker and the container toolkit are in this image of AWS.
data "aws_ssm_parameter" "image" {
  name = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
}

resource "aws_key_pair" "deployer" {
  key_name_prefix = "clipstack-"
  public_key      = var.ssh_key
}

resource "aws_security_group" "ssh" {
  name_prefix = "clipstack-"
  ingress {
    from_port   = 22
    to_port     = 22
    protocol    = "tcp"
    cidr_blocks = [var.ssh_from]
  }
  egress {
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_instance" "machine" {
  ami                                  = data.aws_ssm_parameter.image.value
  instance_type                        = var.instance_type
  key_name                             = aws_key_pair.deployer.key_name
  vpc_security_group_ids               = [aws_security_group.ssh.id]
  instance_initiated_shutdown_behavior = "terminate"
  user_data = templatefile("${path.module}/../first-boot.sh.tftpl", {
    hours       = var.hours
    user        = "ubuntu"
    end_command = "shutdown -h now"
  })
  root_block_device {
    volume_size = 100
    encrypted   = true
  }
  metadata_options {
    http_tokens = "required"
  }
  lifecycle {
    ignore_changes = [ami] # a newer image must not replace a machine in use
  }
}

output "ssh_config" {
  description = "Entry of ~/.ssh/config for `host.docker: ssh://rented`."
  value       = <<-EOT
    Host rented
      HostName ${aws_instance.machine.public_ip}
      User ubuntu
      StrictHostKeyChecking accept-new
      UserKnownHostsFile ~/.ssh/known_hosts.${aws_instance.machine.id}
  EOT
}
