/** Output of `kubectl get -o json` on a kind cluster of Kubernetes 1.33, without fields that only the API server reads. */

const labels = {
  "app.kubernetes.io/component": "embed",
  "app.kubernetes.io/instance": "clipstack",
  "app.kubernetes.io/name": "clipstack",
};

/** Settled Deployment of kind-local. */
export const kubectlDeployment = {
  apiVersion: "apps/v1",
  kind: "Deployment",
  metadata: {
    annotations: {
      "deployment.kubernetes.io/revision": "11",
    },
    generation: 18,
    labels,
    name: "clipstack-embed",
    namespace: "clipstack",
    uid: "39e37850-409b-4185-a947-d8b1d927e33d",
  },
  spec: {
    minReadySeconds: 5,
    progressDeadlineSeconds: 300,
    replicas: 2,
    revisionHistoryLimit: 3,
    selector: {
      matchLabels: labels,
    },
    strategy: {
      rollingUpdate: {
        maxSurge: 1,
        maxUnavailable: 0,
      },
      type: "RollingUpdate",
    },
    template: {
      metadata: {
        creationTimestamp: null,
        labels,
      },
      spec: {
        automountServiceAccountToken: false,
        containers: [
          {
            env: [
              {
                name: "BACKEND",
                value: "onnxruntime",
              },
              {
                name: "EXECUTION_PROVIDER",
                value: "cpu",
              },
              {
                name: "INTRA_OP_THREADS",
                value: "1",
              },
              {
                name: "MODELS",
                value: "openclip-vit-b32:image",
              },
              {
                name: "PORT",
                value: "8002",
              },
              {
                name: "ALLOW_ANONYMOUS",
                value: "true",
              },
              {
                name: "SHUTDOWN_GRACE_SECONDS",
                value: "30",
              },
            ],
            image: "clipstack/embed:k8s-cpu",
            imagePullPolicy: "IfNotPresent",
            lifecycle: {
              preStop: {
                exec: {
                  command: ["sleep", "5"],
                },
              },
            },
            livenessProbe: {
              failureThreshold: 3,
              httpGet: {
                path: "/healthz",
                port: "http",
                scheme: "HTTP",
              },
              periodSeconds: 10,
              successThreshold: 1,
              timeoutSeconds: 5,
            },
            name: "embed",
            ports: [
              {
                containerPort: 8002,
                name: "http",
                protocol: "TCP",
              },
            ],
            readinessProbe: {
              failureThreshold: 2,
              httpGet: {
                path: "/readyz",
                port: "http",
                scheme: "HTTP",
              },
              periodSeconds: 5,
              successThreshold: 1,
              timeoutSeconds: 2,
            },
            resources: {
              limits: {
                cpu: "1",
                memory: "1536Mi",
              },
              requests: {
                cpu: "250m",
                memory: "1Gi",
              },
            },
            securityContext: {
              allowPrivilegeEscalation: false,
              capabilities: {
                drop: ["ALL"],
              },
              readOnlyRootFilesystem: true,
            },
            startupProbe: {
              failureThreshold: 60,
              httpGet: {
                path: "/readyz",
                port: "http",
                scheme: "HTTP",
              },
              periodSeconds: 2,
              successThreshold: 1,
              timeoutSeconds: 2,
            },
            terminationMessagePath: "/dev/termination-log",
            terminationMessagePolicy: "File",
            volumeMounts: [
              {
                mountPath: "/tmp",
                name: "tmp",
              },
            ],
          },
        ],
        dnsPolicy: "ClusterFirst",
        enableServiceLinks: false,
        restartPolicy: "Always",
        schedulerName: "default-scheduler",
        securityContext: {
          runAsGroup: 1000,
          runAsNonRoot: true,
          runAsUser: 1000,
          seccompProfile: {
            type: "RuntimeDefault",
          },
        },
        serviceAccount: "clipstack-embed",
        serviceAccountName: "clipstack-embed",
        terminationGracePeriodSeconds: 40,
        topologySpreadConstraints: [
          {
            labelSelector: {
              matchLabels: labels,
            },
            maxSkew: 1,
            topologyKey: "kubernetes.io/hostname",
            whenUnsatisfiable: "ScheduleAnyway",
          },
        ],
        volumes: [
          {
            emptyDir: {
              medium: "Memory",
              sizeLimit: "64Mi",
            },
            name: "tmp",
          },
        ],
      },
    },
  },
  status: {
    availableReplicas: 2,
    conditions: [
      {
        lastTransitionTime: "2026-11-21T20:38:46Z",
        lastUpdateTime: "2026-11-21T21:02:35Z",
        message: 'ReplicaSet "clipstack-embed-69c68cfb7f" has successfully progressed.',
        reason: "NewReplicaSetAvailable",
        status: "True",
        type: "Progressing",
      },
      {
        lastTransitionTime: "2026-11-21T21:06:31Z",
        lastUpdateTime: "2026-11-21T21:06:31Z",
        message: "Deployment has minimum availability.",
        reason: "MinimumReplicasAvailable",
        status: "True",
        type: "Available",
      },
    ],
    observedGeneration: 18,
    readyReplicas: 2,
    replicas: 2,
    updatedReplicas: 2,
  },
};

/** One of its pods: the template of the Deployment, with the fields that the API server adds. */
export const kubectlPod = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: {
    generation: 1,
    labels: { ...labels, "pod-template-hash": "69c68cfb7f" },
    name: "clipstack-embed-69c68cfb7f-2zbhk",
    namespace: "clipstack",
    uid: "041ef5bd-7aa6-47fe-88ed-c127e4c98ec1",
  },
  spec: {
    ...kubectlDeployment.spec.template.spec,
    nodeName: "shared-control-plane",
    preemptionPolicy: "PreemptLowerPriority",
    priority: 0,
    tolerations: [
      {
        effect: "NoExecute",
        key: "node.kubernetes.io/not-ready",
        operator: "Exists",
        tolerationSeconds: 300,
      },
      {
        effect: "NoExecute",
        key: "node.kubernetes.io/unreachable",
        operator: "Exists",
        tolerationSeconds: 300,
      },
    ],
  },
  status: {
    conditions: [
      {
        lastProbeTime: null,
        lastTransitionTime: "2026-11-21T21:06:22Z",
        status: "True",
        type: "PodReadyToStartContainers",
      },
      {
        lastProbeTime: null,
        lastTransitionTime: "2026-11-21T21:06:20Z",
        status: "True",
        type: "Initialized",
      },
      {
        lastProbeTime: null,
        lastTransitionTime: "2026-11-21T21:06:26Z",
        status: "True",
        type: "Ready",
      },
      {
        lastProbeTime: null,
        lastTransitionTime: "2026-11-21T21:06:26Z",
        status: "True",
        type: "ContainersReady",
      },
      {
        lastProbeTime: null,
        lastTransitionTime: "2026-11-21T21:06:20Z",
        status: "True",
        type: "PodScheduled",
      },
    ],
    containerStatuses: [
      {
        allocatedResources: {
          cpu: "250m",
          memory: "1Gi",
        },
        containerID:
          "containerd://d5e7bc039351730d36bb5e4bb08ecc466366f16a06aa4ad8490643dcd0f97e72",
        image: "docker.io/clipstack/embed:k8s-cpu",
        imageID:
          "docker.io/library/import-2026-11-21@sha256:620e22fc5367741cde5fb382d271c06f7696a3f0eca3e6e4ae72bb3b2df655c1",
        lastState: {},
        name: "embed",
        ready: true,
        resources: {
          limits: {
            cpu: "1",
            memory: "1536Mi",
          },
          requests: {
            cpu: "250m",
            memory: "1Gi",
          },
        },
        restartCount: 0,
        started: true,
        state: {
          running: {
            startedAt: "2026-11-21T21:06:21Z",
          },
        },
      },
    ],
    hostIP: "172.18.0.2",
    hostIPs: [
      {
        ip: "172.18.0.2",
      },
    ],
    phase: "Running",
    podIP: "10.244.0.43",
    podIPs: [
      {
        ip: "10.244.0.43",
      },
    ],
    qosClass: "Burstable",
    startTime: "2026-11-21T21:06:20Z",
  },
};

/** Its autoscaler. */
export const kubectlAutoscaler = {
  apiVersion: "autoscaling/v2",
  kind: "HorizontalPodAutoscaler",
  metadata: {
    labels,
    name: "clipstack-embed",
    namespace: "clipstack",
    uid: "f1493173-64e2-4059-9506-07ad2d9d3827",
  },
  spec: {
    behavior: {
      scaleDown: {
        policies: [
          {
            periodSeconds: 15,
            type: "Percent",
            value: 100,
          },
        ],
        selectPolicy: "Max",
        stabilizationWindowSeconds: 30,
      },
      scaleUp: {
        policies: [
          {
            periodSeconds: 15,
            type: "Pods",
            value: 4,
          },
          {
            periodSeconds: 15,
            type: "Percent",
            value: 100,
          },
        ],
        selectPolicy: "Max",
        stabilizationWindowSeconds: 0,
      },
    },
    maxReplicas: 3,
    metrics: [
      {
        resource: {
          name: "cpu",
          target: {
            averageUtilization: 60,
            type: "Utilization",
          },
        },
        type: "Resource",
      },
    ],
    minReplicas: 2,
    scaleTargetRef: {
      apiVersion: "apps/v1",
      kind: "Deployment",
      name: "clipstack-embed",
    },
  },
  status: {
    conditions: [
      {
        lastTransitionTime: "2026-11-21T20:39:01Z",
        message: "recommended size matches current size",
        reason: "ReadyForNewScale",
        status: "True",
        type: "AbleToScale",
      },
      {
        lastTransitionTime: "2026-11-21T21:02:40Z",
        message:
          "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)",
        reason: "ValidMetricFound",
        status: "True",
        type: "ScalingActive",
      },
      {
        lastTransitionTime: "2026-11-21T21:07:11Z",
        message: "the desired replica count is less than the minimum replica count",
        reason: "TooFewReplicas",
        status: "True",
        type: "ScalingLimited",
      },
    ],
    currentMetrics: [
      {
        resource: {
          current: {
            averageUtilization: 14,
            averageValue: "35m",
          },
          name: "cpu",
        },
        type: "Resource",
      },
    ],
    currentReplicas: 2,
    desiredReplicas: 2,
    lastScaleTime: "2026-11-21T21:05:11Z",
  },
};

/** Its PodDisruptionBudget. */
export const kubectlBudget = {
  apiVersion: "policy/v1",
  kind: "PodDisruptionBudget",
  metadata: {
    generation: 1,
    labels,
    name: "clipstack-embed",
    namespace: "clipstack",
    uid: "0c4d25a5-5337-464b-adc8-a5562a9fe159",
  },
  spec: {
    maxUnavailable: 1,
    selector: {
      matchLabels: labels,
    },
  },
  status: {
    conditions: [
      {
        lastTransitionTime: "2026-11-21T21:07:34Z",
        message: "",
        observedGeneration: 1,
        reason: "SufficientPods",
        status: "True",
        type: "DisruptionAllowed",
      },
    ],
    currentHealthy: 3,
    desiredHealthy: 2,
    disruptionsAllowed: 1,
    expectedPods: 3,
    observedGeneration: 1,
  },
};

const quotaHard = {
  "limits.cpu": "7",
  "limits.memory": "10752Mi",
  pods: "10",
  "requests.cpu": "1750m",
  "requests.memory": "7Gi",
};

/** ResourceQuota of the namespace. */
export const kubectlQuota = {
  apiVersion: "v1",
  kind: "ResourceQuota",
  metadata: {
    labels: {
      "app.kubernetes.io/instance": "clipstack",
      "app.kubernetes.io/name": "clipstack",
    },
    name: "clipstack",
    namespace: "clipstack",
    uid: "6edddcc6-c6fd-4012-9ed1-fc7a37139838",
  },
  spec: { hard: quotaHard },
  status: {
    hard: quotaHard,
    used: {
      "limits.cpu": "3",
      "limits.memory": "4608Mi",
      pods: "3",
      "requests.cpu": "750m",
      "requests.memory": "3Gi",
    },
  },
};
