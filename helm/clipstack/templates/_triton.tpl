{{/* Name of the model configuration: what Triton gets as --model-config-name. */}}
{{- define "clipstack.variant" -}}
{{- $contract := include "clipstack.contract" nil | fromJson -}}
{{- default (get $contract.variants (toString .Values.triton.gpus)) .Values.triton.modelConfig.variant -}}
{{- end -}}

{{/* The model configuration: of the values, or the project's for that many GPUs. */}}
{{- define "clipstack.modelConfig" -}}
{{- $contract := include "clipstack.contract" nil | fromJson -}}
{{- $triton := .Values.triton -}}
{{- if $triton.modelConfig.text -}}
{{- $triton.modelConfig.text -}}
{{- else -}}
{{- $model := index $contract.models $triton.backend -}}
{{- $text := .Files.Get (printf "model-configs/%s/%s.pbtxt" $model (include "clipstack.variant" .)) -}}
{{- /* an engine fits the weights and the TensorRT that it was built of: others do not find it in the cache */ -}}
{{- $weights := default "image" .Values.model.sha256 | trunc 12 -}}
{{- $image := include "clipstack.image" (include "clipstack.tritonImage" . | fromJson) | sha256sum | trunc 12 -}}
{{- $text | replace $contract.enginesMark (printf "%s_%s" $weights $image) -}}
{{- end -}}
{{- end -}}

{{- define "clipstack.tritonArgs" -}}
{{- $contract := include "clipstack.contract" nil | fromJson -}}
{{- $model := index $contract.models .Values.triton.backend -}}
{{- $args := concat $contract.tritonCommand (list (printf "--model-config-name=%s" (include "clipstack.variant" .)) (printf "--exit-timeout-secs=%v" .Values.triton.graceSeconds)) -}}
{{- $isOpen := eq .Values.triton.modelControl "open" -}}
{{- if or $isOpen (eq .Values.model.weights "image") -}}
{{- /* an image with weights has the folders of several models */ -}}
{{- $args = concat $args (list "--model-control-mode=explicit" (printf "--load-model=%s" $model)) -}}
{{- else -}}
{{- $args = append $args "--model-control-mode=none" -}}
{{- end -}}
{{- if include "clipstack.restrictsModelControl" . -}}
{{- $args = concat $args $contract.modelControlRestriction -}}
{{- end -}}
{{- toYaml $args -}}
{{- end -}}

{{/* Whether Triton's model control API exists and requires the pod's UID. */}}
{{- define "clipstack.restrictsModelControl" -}}
{{- if and (eq .Values.model.weights "image") (ne .Values.triton.modelControl "open") }}true{{ end -}}
{{- end -}}

{{/* Whether a claim for TensorRT's engines is made here. */}}
{{- define "clipstack.engineCacheClaim" -}}
{{- $cache := .Values.triton.engineCache -}}
{{- default (printf "%s-triton-engines" (include "clipstack.fullname" .)) $cache.existingClaim -}}
{{- end -}}

{{/* How long back the queue time looks: four readings, so that one that is late leaves enough, and one minute at the least. */}}
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
{{- $expression := (include "clipstack.contract" nil | fromJson).queueTime.expression -}}
{{- $expression | replace "BY" (index . 1) | replace "SELECTOR" (include "clipstack.tritonSelector" $root) | replace "WINDOW" (include "clipstack.queueWindow" $root) -}}
{{- end -}}

{{/* Counters of the pods of the release. */}}
{{- define "clipstack.tritonSelector" -}}
namespace={{ .Release.Namespace | quote }},pod=~"{{ include "clipstack.fullname" . }}-triton-.+"
{{- end -}}

{{/* One value for the autoscaler of the release: the mean over its pods. */}}
{{- define "clipstack.queueTimeOfRelease" -}}
{{- $query := .Values.triton.autoscaling.prometheus.query -}}
{{- if $query -}}
{{- $query -}}
{{- else -}}
avg({{ include "clipstack.queueTime" (list . "pod") }})
{{- end -}}
{{- end -}}

{{/* Rules of Prometheus: the queue time of each pod, recorded. */}}
{{- define "clipstack.prometheusRules" -}}
groups:
  - name: clipstack
    rules:
      - record: {{ (include "clipstack.contract" nil | fromJson).queueTime.record }}{{ include "clipstack.queueWindow" . }}
        expr: {{ include "clipstack.queueTime" (list . "namespace, pod") | quote }}
{{- end -}}
