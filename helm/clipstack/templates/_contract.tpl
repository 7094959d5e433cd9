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
  "stronglyTyped": "26.06",
  "catalogue": {
    "openclip-vit-b32": {
      "width": 512,
      "modalities": [
        "image",
        "text"
      ],
      "tokenizer": ""
    },
    "openclip-vit-b16": {
      "width": 512,
      "modalities": [
        "image",
        "text"
      ],
      "tokenizer": ""
    },
    "openclip-vit-l14": {
      "width": 768,
      "modalities": [
        "image",
        "text"
      ],
      "tokenizer": ""
    },
    "siglip2-base-224": {
      "width": 768,
      "modalities": [
        "image",
        "text"
      ],
      "tokenizer": "tokenizer.model"
    },
    "dinov2-small": {
      "width": 384,
      "modalities": [
        "image"
      ],
      "tokenizer": ""
    },
    "dinov2-base": {
      "width": 768,
      "modalities": [
        "image"
      ],
      "tokenizer": ""
    },
    "mobileclip2-s0": {
      "width": 512,
      "modalities": [
        "image",
        "text"
      ],
      "tokenizer": ""
    },
    "mobileclip2-s2": {
      "width": 512,
      "modalities": [
        "image",
        "text"
      ],
      "tokenizer": ""
    },
    "efficientnet-lite0": {
      "width": 1280,
      "modalities": [
        "image"
      ],
      "tokenizer": ""
    }
  },
  "defaultModel": "openclip-vit-b32",
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
