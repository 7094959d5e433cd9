import { z } from "zod";
import { graceSeconds, preStopSeconds, startSeconds } from "../../contract/pods.ts";
import { embedPort } from "../../contract/ports.ts";
import { serverSettings } from "../../contract/server/server-settings.ts";
import {
  allowPlaintext,
  budget,
  image,
  imagePull,
  replicas,
  resources,
  scaling,
  scheduling,
  service,
  spareGpu,
} from "./chart-pod-values.ts";
import { choice, flag, integer, reference, secretKey } from "./chart-value-fields.ts";

// the grace period is also part of the pod
const { shutdownGraceSeconds: _grace, ...chartVariables } = serverSettings.shape;

export const embed = z
  .strictObject({
    enabled: flag(true, "Whether the embed server is deployed."),
    image: image(
      "clipstack/embed",
      "k8s-cpu",
      "Embed image; it also downloads and verifies weights.",
    ),
    backend: choice(
      ["onnxruntime", "triton"],
      "onnxruntime",
      "`onnxruntime`: ONNX Runtime in the embed server. `triton`: gateway to the Triton servers of this release.",
    ),
    accelerator: choice(
      ["cpu", "gpu"],
      "cpu",
      "Device of the backend `onnxruntime`; `gpu`, one per pod, requires an image with CUDA.",
    ),
    spareGpu,
    server: z
      .strictObject(chartVariables)
      .prefault({})
      .describe("Variables of the server that the chart does not set itself."),
    resources: resources({ cpu: "250m", memory: "1Gi" }, { cpu: "1", memory: "1536Mi" }),
    service: service(embedPort)
      .unwrap()
      .extend({
        ipFamilyPolicy: choice(
          ["SingleStack", "PreferDualStack", "RequireDualStack"],
          "SingleStack",
          "Whether the Service has an IPv4 and an IPv6 address; the server then listens on both.",
        ),
      })
      .prefault({})
      .describe("Service of the embed server."),
    auth: z
      .strictObject({
        existingSecret: reference(
          "Secret with the bearer token required from clients; with `keysSecret`, that of the client that reads metrics and runs `helm test`.",
        ),
        existingSecretKey: secretKey.default("api-key").describe("Key of the token in the Secret."),
        keysSecret: reference(
          "Secret whose key `keys.json` lists the keys of clients (docs/embed-server.md), mounted as a file: a change is used without a restart. Requires `existingSecret`.",
        ),
        allowAnonymous: flag(
          false,
          "Whether a Service reachable from outside the cluster may have no authentication. A ClusterIP without a Secret has none.",
        ),
      })
      .prefault({})
      .describe("Authentication."),
    tls: z
      .strictObject({
        secretName: reference(
          "Secret of the type `kubernetes.io/tls`, for example from cert-manager: the server and its probes then use HTTPS, and a renewed certificate is used without a restart.",
        ),
      })
      .prefault({})
      .describe("TLS of the embed server."),
    allowPlaintext: allowPlaintext(
      "Whether a Service reachable from outside the cluster may have no TLS.",
    ),
    replicas: replicas(2),
    autoscaling: z
      .strictObject(scaling(false, 2, 6))
      .prefault({})
      .describe("Autoscaling on CPU."),
    budget,
    startSeconds: integer(10, 14_400)
      .optional()
      .describe(
        `Maximum start time in seconds, until the models are loaded or a gateway responds to \`/healthz\`; by default ${startSeconds}.`,
      ),
    imagePullSeconds: imagePull("embed"),
    graceSeconds: integer(1, 3_600)
      .default(graceSeconds)
      .describe("Maximum time to drain accepted requests, in seconds."),
    preStopSeconds: integer(0, 600)
      .default(preStopSeconds)
      .describe("Time before a stop in which the endpoints are removed, in seconds."),
    ...scheduling,
  })
  .prefault({})
  .describe("Embed server: images and texts in, embeddings out.");
