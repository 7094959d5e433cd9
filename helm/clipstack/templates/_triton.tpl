{{/*
Model configuration of a tower: from the values, or the chart's with an instance on each GPU and, if the checksum of the weights is known,
their fingerprint (contract/fingerprint.ts). Arguments: root, tower.
*/}}
{{- define "clipstack.modelConfig" -}}
{{- $root := index . 0 -}}
{{- $tower := index . 1 -}}
{{- $own := get $root.Values.triton.modelConfig.texts $tower.triton -}}
{{- if $own -}}
{{- $own -}}
{{- else -}}
{{- $contract := include "clipstack.contract" $root | fromJson -}}
{{- $gpus := int $root.Values.triton.gpus -}}
{{- $parts := splitList (printf "%s\n" $contract.instancesMark) ($root.Files.Get (printf "model-configs/%s.pbtxt" $tower.triton)) -}}
{{- $devices := gt $gpus 0 | ternary (printf "kind: KIND_GPU\n    count: 1\n    gpus: [%s]" (until $gpus | join ", ")) "kind: KIND_CPU\n    count: 1" -}}
{{- $text := printf "%sinstance_group [\n  {\n    %s\n  }\n]\n%s" (first $parts) $devices (gt $gpus 0 | ternary (last $parts) "") -}}
{{- /* the cache path includes weights and TensorRT version, because an engine fits no others */ -}}
{{- $weights := default "image" $tower.sha256 | trunc 12 -}}
{{- $image := include "clipstack.image" (include "clipstack.tritonImage" $root | fromJson) | sha256sum | trunc 12 -}}
{{- $text | replace $contract.enginesMark (printf "%s_%s" $weights $image) -}}
{{- /* pods verify the checksum */ -}}
{{- if $tower.sha256 -}}
{{- $precision := contains $contract.tensorrtFile $text | ternary "fp16" "fp32" -}}
{{- $fingerprint := printf `{"precision":"%s","preprocessing":"%s","weights":"%s"}` $precision $tower.preprocessing $tower.sha256 | sha256sum -}}
{{- $names := $contract.fingerprintParameters -}}
{{- range $name, $value := dict $names.fingerprint $fingerprint $names.version "1" $names.preprocessing $tower.preprocessing }}
parameters { key: "{{ $name }}" value { string_value: "{{ $value }}" } }
{{- end }}
{{ end -}}
{{- end -}}
{{- end -}}

{{/* Model configurations of all towers, whose checksum changes with any of them. */}}
{{- define "clipstack.modelConfigs" -}}
{{- range $tower := (include "clipstack.towers" . | fromJson).towers }}{{ include "clipstack.modelConfig" (list $ $tower) }}{{ end -}}
{{- end -}}

{{/* Arguments of Triton that the chart sets. */}}
{{- define "clipstack.ownTritonArgs" -}}
{{- $contract := include "clipstack.contract" $ | fromJson -}}
{{- $args := concat $contract.tritonCommand (list (printf "--model-config-name=%s" $contract.modelConfigName) (printf "--exit-timeout-secs=%v" .Values.triton.graceSeconds)) -}}
{{- $isOpen := eq .Values.triton.modelControl "open" -}}
{{- if or $isOpen (eq .Values.model.weights "image") -}}
{{- /* an image with weights may contain other models */ -}}
{{- $args = append $args "--model-control-mode=explicit" -}}
{{- range $tower := (include "clipstack.towers" . | fromJson).towers }}{{ $args = append $args (printf "--load-model=%s" $tower.triton) }}{{ end -}}
{{- else -}}
{{- $args = append $args "--model-control-mode=none" -}}
{{- end -}}
{{- $args = concat $args (get $contract.controlRestrictions .Values.triton.modelControl) -}}
{{- with .Values.tracing.endpoint -}}
{{- $service := printf "%s-triton" (include "clipstack.fullname" $) -}}
{{- $endpoint := trimSuffix "/" . -}}
{{- range $contract.tracingArguments }}{{ $args = append $args (. | replace "ENDPOINT" $endpoint | replace "SERVICE" $service) }}{{ end -}}
{{- end -}}
{{- toYaml $args -}}
{{- end -}}

{{- define "clipstack.tritonArgs" -}}
{{- toYaml (concat (include "clipstack.ownTritonArgs" . | fromYamlArray) .Values.triton.extraArgs) -}}
{{- end -}}

{{/* Whether the chart creates a claim for the engine cache. */}}
{{- define "clipstack.engineCacheClaim" -}}
{{- $cache := .Values.triton.engineCache -}}
{{- default (printf "%s-triton-engines" (include "clipstack.fullname" .)) $cache.existingClaim -}}
{{- end -}}

{{/* Averaging time of the queue time: four scrape intervals, at least one minute. */}}
{{- define "clipstack.queueWindow" -}}
{{- $interval := .Values.serviceMonitor.interval -}}
{{- $number := regexFind "^[0-9]+" $interval | int -}}
{{- $seconds := hasSuffix "ms" $interval | ternary (div $number 1000) (hasSuffix "m" $interval | ternary (mul $number 60) $number) -}}
{{- $window := max 60 (mul 4 $seconds) -}}
{{- if mod $window 60 }}{{ $window }}s{{ else }}{{ div $window 60 }}m{{ end -}}
{{- end -}}

{{/*
Queue time of a request in milliseconds, over that window: the counters of all models of a pod are summed before they are
divided, and a pod without traffic has 0. Takes a list: the root, labels.
*/}}
{{- define "clipstack.queueTime" -}}
{{- $root := index . 0 -}}
{{- $expression := (include "clipstack.contract" $root | fromJson).queueTime.expression -}}
{{- $expression | replace "BY" (index . 1) | replace "SELECTOR" (include "clipstack.tritonSelector" $root) | replace "WINDOW" (include "clipstack.queueWindow" $root) -}}
{{- end -}}

{{/* Counters of the pods of the release. */}}
{{- define "clipstack.tritonSelector" -}}
namespace={{ .Release.Namespace | quote }},pod=~"{{ include "clipstack.fullname" . }}-triton-.+"
{{- end -}}

{{/* Query of KEDA. Arguments: root, its name in `scalingQueries`, component of the pods. */}}
{{- define "clipstack.scalingQuery" -}}
{{- $root := index . 0 -}}
{{- $selector := printf "namespace=%q,pod=~\"%s-%s-.+\"" $root.Release.Namespace (include "clipstack.fullname" $root) (index . 2) -}}
{{- get (include "clipstack.contract" $root | fromJson).scalingQueries (index . 1) | replace "SELECTOR" $selector -}}
{{- end -}}

{{/* Value for the autoscaler of the release: mean over its pods. */}}
{{- define "clipstack.queueTimeOfRelease" -}}
{{- $query := .Values.triton.autoscaling.prometheus.query -}}
{{- if $query -}}
{{- $query -}}
{{- else -}}
avg({{ include "clipstack.queueTime" (list . "pod") }})
{{- end -}}
{{- end -}}

{{/* Prometheus rules: the queue time of each pod, and the alerts of prometheus/rules.yaml for the pods of the release. */}}
{{- define "clipstack.prometheusRules" -}}
{{- $rule := .Values.prometheusRule -}}
groups:
{{- if .Values.triton.enabled }}
  - name: clipstack
    rules:
      - record: "{{ (include "clipstack.contract" $ | fromJson).queueTime.record }}{{ include "clipstack.queueWindow" . }}"
        expr: {{ include "clipstack.queueTime" (list . "namespace, pod") | quote }}
{{- end }}
{{ .Files.Get "prometheus/rules.yaml" | splitList "groups:\n" | last | trimSuffix "\n" | replace "TRITON_SELECTOR" (include "clipstack.tritonSelector" .) | replace "EMBED_SELECTOR" (printf "namespace=%q,pod=~\"%s-embed-.+\"" .Release.Namespace (include "clipstack.fullname" .)) | replace "GPU_SELECTOR" $rule.gpuSelector | replace "LATENCY_SECONDS" (toString $rule.latencySloSeconds) | replace "PREDICTED_IMAGES_PER_SECOND" (toString $rule.predictedImagesPerSecond) | replace "BUDGET_USD_PER_1000_IMAGES" (toString $rule.budgetUsdPer1000Images) | replace "USD_PER_HOUR" (toString $rule.usdPerHour) }}
{{- end -}}

{{/* Container of a Triton server. */}}
{{- define "clipstack.tritonContainer" -}}
{{- $contract := include "clipstack.contract" $ | fromJson -}}
{{- $triton := .Values.triton -}}
{{- $towers := (include "clipstack.towers" . | fromJson).towers -}}
{{- $compiles := include "clipstack.compiles" . -}}
{{- $image := include "clipstack.tritonImage" . | fromJson -}}
- name: triton
  image: {{ include "clipstack.image" $image | quote }}
  imagePullPolicy: {{ $image.pullPolicy | quote }}
  args:
    {{- include "clipstack.tritonArgs" . | nindent 4 }}
  {{- with $triton.extraEnv }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - name: http
      containerPort: {{ $contract.ports.tritonHttp }}
      protocol: TCP
    - name: grpc
      containerPort: {{ $contract.ports.tritonGrpc }}
      protocol: TCP
    - name: metrics
      containerPort: {{ $contract.ports.tritonMetrics }}
      protocol: TCP
  resources:
    {{- include "clipstack.resources" (list $ $triton $triton.gpus) | nindent 4 }}
  # while the models load and TensorRT builds engines: allow the maximum start time
  startupProbe:
    httpGet:
      path: {{ $contract.paths.tritonReady | quote }}
      port: http
    periodSeconds: {{ $contract.probes.readiness.periodSeconds }}
    timeoutSeconds: {{ $contract.probes.startup.timeoutSeconds }}
    failureThreshold: {{ divf (include "clipstack.tritonStart" .) $contract.probes.readiness.periodSeconds | ceil }}
  # draining or a model is not served: remove from the endpoints soon
  readinessProbe:
    httpGet:
      path: {{ $contract.paths.tritonReady | quote }}
      port: http
    {{- toYaml $contract.probes.readiness | nindent 4 }}
  # restarts a hanging process
  livenessProbe:
    httpGet:
      path: {{ $contract.paths.tritonLive | quote }}
      port: http
    {{- toYaml $contract.probes.liveness | nindent 4 }}
  # endpoints are removed with a delay after the stop begins
  lifecycle:
    preStop:
      exec:
        command: [sleep, {{ $triton.preStopSeconds | quote }}]
  securityContext:
    {{- include "clipstack.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - name: tmp
      mountPath: /tmp
    - name: shared-memory
      mountPath: /dev/shm
    {{- if ne .Values.model.weights "image" }}
    # hides other models of the image, because Triton would load them all
    - name: repository
      mountPath: {{ $contract.repository | quote }}
    {{- end }}
    {{- range $tower := $towers }}
    - name: model-config{{ $tower.suffix }}
      mountPath: "{{ $contract.repository }}/{{ $tower.triton }}/configs"
      readOnly: true
    {{- end }}
    {{- if $compiles }}
    - name: engines
      mountPath: {{ $contract.engineCache | quote }}
    {{- end }}
    {{- with $triton.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with include "clipstack.weightsMount" (list . "triton") }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Volumes of a Triton server. */}}
{{- define "clipstack.tritonVolumes" -}}
{{- $contract := include "clipstack.contract" $ | fromJson -}}
{{- $triton := .Values.triton -}}
{{- $towers := (include "clipstack.towers" . | fromJson).towers -}}
{{- $compiles := include "clipstack.compiles" . -}}
{{- with $triton.extraVolumes }}
{{- toYaml . | nindent 0 }}
{{- end }}
- name: tmp
  emptyDir:
    medium: Memory
    sizeLimit: {{ $contract.tritonTmpMiB }}Mi
- name: shared-memory
  emptyDir:
    medium: Memory
    sizeLimit: {{ $triton.sharedMemory }}
{{- if ne .Values.model.weights "image" }}
- name: repository
  emptyDir:
    sizeLimit: 1Mi
{{- end }}
{{- range $tower := $towers }}
- name: model-config{{ $tower.suffix }}
  configMap:
    name: "{{ include "clipstack.fullname" $ }}-triton{{ $tower.suffix }}"
{{- end }}
{{- if $compiles }}
- name: engines
  {{- if and $compiles $triton.engineCache.enabled }}
  persistentVolumeClaim:
    claimName: {{ include "clipstack.engineCacheClaim" . | quote }}
  {{- else }}
  # deleted with the pod: the next one rebuilds its engines
  emptyDir:
    sizeLimit: {{ $triton.engineCache.size }}
  {{- end }}
{{- end }}
{{- with include "clipstack.weightsVolume" (list . "triton") }}
{{- . | nindent 0 }}
{{- end }}
{{- end -}}
