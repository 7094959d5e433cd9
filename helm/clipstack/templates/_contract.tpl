{{- /* Rendered by 'npm run render' from contract. Do not edit. */ -}}
{{- define "clipstack.contract" -}}
{
  "ports": {
    "embed": 8002,
    "tritonHttp": 8000,
    "tritonGrpc": 8001,
    "tritonMetrics": 8002
  },
  "paths": {
    "embed": "/embed",
    "embedBase64": "/embed/base64",
    "embedText": "/embed/text",
    "openAiEmbeddings": "/v1/embeddings",
    "openAiModels": "/v1/models",
    "openAiModel": "/v1/models/:model",
    "healthz": "/healthz",
    "health": "/health",
    "readyz": "/readyz",
    "metrics": "/metrics",
    "openapi": "/openapi.json",
    "page": "/",
    "tritonReady": "/v2/health/ready",
    "tritonLive": "/v2/health/live"
  },
  "probes": {
    "startup": {
      "periodSeconds": 2,
      "timeoutSeconds": 2
    },
    "readiness": {
      "periodSeconds": 5,
      "timeoutSeconds": 2,
      "failureThreshold": 2
    },
    "liveness": {
      "periodSeconds": 10,
      "timeoutSeconds": 5,
      "failureThreshold": 3
    }
  },
  "startSeconds": {
    "embed": 120,
    "triton": 120,
    "tritonEngine": 300
  },
  "stopMarginSeconds": 5,
  "minReadySeconds": 5,
  "revisionHistoryLimit": 3,
  "surge": 1,
  "gpuScaling": {
    "scaleUp": {
      "stabilizationWindowSeconds": 30,
      "selectPolicy": "Max",
      "policies": [
        {
          "type": "Pods",
          "value": 1,
          "periodSeconds": 60
        }
      ]
    },
    "scaleDown": {
      "selectPolicy": "Max",
      "policies": [
        {
          "type": "Pods",
          "value": 1,
          "periodSeconds": 60
        }
      ]
    }
  },
  "templateHashLabel": "pod-template-hash",
  "user": {
    "uid": 1000,
    "gid": 1000
  },
  "tmpMiB": 64,
  "tritonTmpMiB": 256,
  "repository": "/models",
  "engineCache": "/engine-cache",
  "instancesMark": "# CHART-INSTANCES",
  "enginesMark": "CHART-ENGINES",
  "modelConfigName": "deployed",
  "tensorrtFile": "model.trt-fp16.onnx",
  "fingerprintParameters": {
    "fingerprint": "fingerprint",
    "preprocessing": "preprocessing_sha256",
    "version": "fingerprint_version"
  },
  "stronglyTyped": "26.06",
  "catalogue": {
    "openclip-vit-b32": {
      "width": 512,
      "modalities": [
        "image",
        "text"
      ],
      "preprocessing": {
        "image": "e8f57828611ee8d36d29c4f17595cb4a189af4e718241b887aeaa9bc9d326a6a",
        "text": "afe15cbfab69be4534d0f25820118b056fb13704cdc72bb919c2fb2769ad00f0"
      },
      "tokenizer": ""
    },
    "openclip-vit-b16": {
      "width": 512,
      "modalities": [
        "image",
        "text"
      ],
      "preprocessing": {
        "image": "e8f57828611ee8d36d29c4f17595cb4a189af4e718241b887aeaa9bc9d326a6a",
        "text": "afe15cbfab69be4534d0f25820118b056fb13704cdc72bb919c2fb2769ad00f0"
      },
      "tokenizer": ""
    },
    "openclip-vit-l14": {
      "width": 768,
      "modalities": [
        "image",
        "text"
      ],
      "preprocessing": {
        "image": "cd92f934f9dc07df60d7e33d03a1948e97ee0aa75e7b05e8800e214b44585311",
        "text": "afe15cbfab69be4534d0f25820118b056fb13704cdc72bb919c2fb2769ad00f0"
      },
      "tokenizer": ""
    },
    "siglip2-base-224": {
      "width": 768,
      "modalities": [
        "image",
        "text"
      ],
      "preprocessing": {
        "image": "c509f55545f0b553868b0f9c33683026c6ea5c00a24fdf204ab754f2fbb169ee",
        "text": "dce4f30b78968ca0ffa5880d7dc925caf10d6db5a5dd61172a4354396ca6703f"
      },
      "tokenizer": "tokenizer.model"
    },
    "dinov2-small": {
      "width": 384,
      "modalities": [
        "image"
      ],
      "preprocessing": {
        "image": "7c208b7380ce5317b9931262c77712b2903dcda4d2a9c1eb2f205f1b6356675f"
      },
      "tokenizer": ""
    },
    "dinov2-base": {
      "width": 768,
      "modalities": [
        "image"
      ],
      "preprocessing": {
        "image": "7c208b7380ce5317b9931262c77712b2903dcda4d2a9c1eb2f205f1b6356675f"
      },
      "tokenizer": ""
    },
    "mobileclip2-s0": {
      "width": 512,
      "modalities": [
        "image",
        "text"
      ],
      "preprocessing": {
        "image": "7d3224ca4bc7ae0dd5fa0adda23655c5adab873758190973229195dcac9806e7",
        "text": "afe15cbfab69be4534d0f25820118b056fb13704cdc72bb919c2fb2769ad00f0"
      },
      "tokenizer": ""
    },
    "mobileclip2-s2": {
      "width": 512,
      "modalities": [
        "image",
        "text"
      ],
      "preprocessing": {
        "image": "7d3224ca4bc7ae0dd5fa0adda23655c5adab873758190973229195dcac9806e7",
        "text": "afe15cbfab69be4534d0f25820118b056fb13704cdc72bb919c2fb2769ad00f0"
      },
      "tokenizer": ""
    },
    "efficientnet-lite0": {
      "width": 1280,
      "modalities": [
        "image"
      ],
      "preprocessing": {
        "image": "1a5e229f3bd98cd15f4622dd28c0984dc1324f7ed5a396f7f094011a5e746865"
      },
      "tokenizer": ""
    }
  },
  "defaultModel": "openclip-vit-b32",
  "defaults": {
    "nameOverride": "",
    "fullnameOverride": "",
    "commonLabels": {},
    "imagePullSecrets": [],
    "serviceAccount.create": true,
    "serviceAccount.name": "",
    "serviceAccount.annotations": {},
    "fixedUser": true,
    "models": [
      "openclip-vit-b32:image"
    ],
    "modelSpecs": [],
    "model.weights": "image",
    "model.sha256": "",
    "model.pvc.claimName": "",
    "model.pvc.subPath": "",
    "model.init.url": "",
    "model.init.existingSecret": "",
    "model.init.existingSecretKey": "url",
    "model.init.sizeLimit": "1Gi",
    "model.init.timeoutSeconds": 900,
    "model.towers": {},
    "embed.enabled": true,
    "embed.image.repository": "clipstack/embed",
    "embed.image.tag": "k8s-cpu",
    "embed.image.digest": "",
    "embed.image.pullPolicy": "IfNotPresent",
    "embed.backend": "onnxruntime",
    "embed.accelerator": "cpu",
    "embed.spareGpu": false,
    "embed.resources.requests": {
      "cpu": "250m",
      "memory": "1Gi"
    },
    "embed.resources.limits": {
      "cpu": "1",
      "memory": "1536Mi"
    },
    "embed.service.type": "ClusterIP",
    "embed.service.port": 8002,
    "embed.service.nodePort": null,
    "embed.service.annotations": {},
    "embed.auth.existingSecret": "",
    "embed.auth.existingSecretKey": "api-key",
    "embed.auth.allowAnonymous": false,
    "embed.replicas": 2,
    "embed.autoscaling.enabled": false,
    "embed.autoscaling.minReplicas": 2,
    "embed.autoscaling.maxReplicas": 6,
    "embed.autoscaling.cpuPercent": 60,
    "embed.autoscaling.scaleDownWindowSeconds": 180,
    "embed.autoscaling.behavior": null,
    "embed.budget.enabled": true,
    "embed.budget.maxUnavailable": null,
    "embed.budget.minAvailable": null,
    "embed.budget.unhealthyPodEvictionPolicy": "AlwaysAllow",
    "embed.startSeconds": null,
    "embed.imagePullSeconds": 300,
    "embed.graceSeconds": 30,
    "embed.preStopSeconds": 5,
    "embed.runtimeClassName": "",
    "embed.nodeSelector": {},
    "embed.tolerations": [],
    "embed.affinity.nodeAffinity": null,
    "embed.affinity.podAffinity": null,
    "embed.affinity.podAntiAffinity": null,
    "embed.topologySpread.enabled": true,
    "embed.topologySpread.topologyKey": "kubernetes.io/hostname",
    "embed.topologySpread.maxSkew": 1,
    "embed.topologySpread.whenUnsatisfiable": "ScheduleAnyway",
    "embed.priorityClassName": "",
    "embed.podAnnotations": {},
    "embed.podLabels": {},
    "embed.extraEnv": [],
    "triton.enabled": false,
    "triton.server": "tritonserver",
    "triton.backend": "onnxruntime",
    "triton.modelKind": "fp32",
    "triton.image.repository": "nvcr.io/nvidia/tritonserver",
    "triton.image.tag": "26.07-py3",
    "triton.image.digest": "",
    "triton.image.pullPolicy": "IfNotPresent",
    "triton.gpus": 1,
    "triton.spareGpu": false,
    "triton.modelConfig.texts": {},
    "triton.modelControl": "restricted",
    "triton.engineCache.enabled": false,
    "triton.engineCache.existingClaim": "",
    "triton.engineCache.storageClass": "",
    "triton.engineCache.accessMode": "ReadWriteOnce",
    "triton.engineCache.size": "2Gi",
    "triton.sharedMemory": "1Gi",
    "triton.resources.requests": {
      "cpu": "2",
      "memory": "4Gi"
    },
    "triton.resources.limits": {
      "cpu": "4",
      "memory": "8Gi"
    },
    "triton.allowUnauthenticated": false,
    "triton.service.type": "ClusterIP",
    "triton.service.annotations": {},
    "triton.replicas": 1,
    "triton.autoscaling.enabled": false,
    "triton.autoscaling.minReplicas": 1,
    "triton.autoscaling.maxReplicas": 4,
    "triton.autoscaling.cpuPercent": 60,
    "triton.autoscaling.scaleDownWindowSeconds": 180,
    "triton.autoscaling.behavior": null,
    "triton.autoscaling.metric": "queue-time",
    "triton.autoscaling.source": "keda",
    "triton.autoscaling.targetQueueMilliseconds": 50,
    "triton.autoscaling.fallbackReplicas": null,
    "triton.autoscaling.prometheus.url": "",
    "triton.autoscaling.prometheus.query": "",
    "triton.budget.enabled": true,
    "triton.budget.maxUnavailable": null,
    "triton.budget.minAvailable": null,
    "triton.budget.unhealthyPodEvictionPolicy": "AlwaysAllow",
    "triton.startSeconds": null,
    "triton.imagePullSeconds": 900,
    "triton.graceSeconds": 30,
    "triton.preStopSeconds": 5,
    "triton.runtimeClassName": "",
    "triton.nodeSelector": {},
    "triton.tolerations": [],
    "triton.affinity.nodeAffinity": null,
    "triton.affinity.podAffinity": null,
    "triton.affinity.podAntiAffinity": null,
    "triton.topologySpread.enabled": true,
    "triton.topologySpread.topologyKey": "kubernetes.io/hostname",
    "triton.topologySpread.maxSkew": 1,
    "triton.topologySpread.whenUnsatisfiable": "ScheduleAnyway",
    "triton.priorityClassName": "",
    "triton.podAnnotations": {},
    "triton.podLabels": {},
    "triton.extraEnv": [],
    "gpuResourceName": "nvidia.com/gpu",
    "quota.enabled": false,
    "quota.hard": {},
    "limitRange.enabled": false,
    "limitRange.defaultRequest": {
      "cpu": "100m",
      "memory": "128Mi"
    },
    "limitRange.default": {
      "cpu": "500m",
      "memory": "512Mi"
    },
    "limitRange.max": {},
    "networkPolicy.enabled": true,
    "networkPolicy.embedFrom": [],
    "networkPolicy.tritonFrom": [],
    "networkPolicy.metricsFrom": [],
    "networkPolicy.egress": [],
    "serviceMonitor.enabled": false,
    "serviceMonitor.interval": "15s",
    "serviceMonitor.labels": {},
    "prometheusRule.enabled": false,
    "prometheusRule.labels": {}
  },
  "suffixes": {
    "fp32": "",
    "trt": "_trt",
    "u8": "_u8",
    "text": "_text",
    "text-trt": "_text_trt"
  },
  "removedValues": {
    "model.name": "set models, and triton.modelKind u8 for uint8 pixels",
    "triton.variant": "set triton.modelKind",
    "triton.modelConfig.text": "set triton.modelConfig.texts.<name of the model in Triton>",
    "triton.modelConfig.variant": "the configurations follow from triton.gpus"
  },
  "queueTime": {
    "expression": "sum by (BY) (rate(nv_inference_queue_duration_us{SELECTOR}[WINDOW])) / clamp_min(sum by (BY) (rate(nv_inference_request_success{SELECTOR}[WINDOW])), 0.001) / 1000",
    "record": "clipstack:triton_queue_milliseconds:rate",
    "adapterMetric": "clipstack_triton_queue_milliseconds"
  },
  "ownEnv": [
    "BACKEND",
    "EXECUTION_PROVIDER",
    "INTRA_OP_THREADS",
    "MODELS",
    "MODEL_SPECS",
    "MODEL_REPOSITORY",
    "TRITON_GRPC_URLS",
    "TRITON_MODEL_KIND",
    "HOST",
    "PORT",
    "API_KEY",
    "ALLOW_ANONYMOUS",
    "SHUTDOWN_GRACE_SECONDS",
    "TLS_CERT_FILE",
    "TLS_KEY_FILE"
  ],
  "tritonRepository": "nvcr.io/nvidia/tritonserver",
  "tritonCommand": [
    "tritonserver",
    "--model-repository=/models",
    "--http-max-input-size=134217728",
    "--strict-readiness=true",
    "--exit-on-error=true",
    "--disable-auto-complete-config"
  ],
  "controlRestrictions": {
    "restricted": [
      "--http-restricted-api=shared-memory,trace,logging,model-repository:no:header=none",
      "--grpc-restricted-protocol=shared-memory,trace,logging,model-repository:no:header=none"
    ],
    "open": [
      "--http-restricted-api=shared-memory,trace,logging:no:header=none",
      "--grpc-restricted-protocol=shared-memory,trace,logging:no:header=none"
    ]
  }
}
{{- end -}}
