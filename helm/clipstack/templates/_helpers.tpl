{{/* Facts that the templates share with the server, rendered from contract, as JSON. Argument: root. */}}
{{- define "clipstack.contract" -}}
{{- .Files.Get "files/contract.json" -}}
{{- end -}}

{{/* Sets the values that are null to their defaults. Every template begins with it, because Helm renders them in any order. */}}
{{- define "clipstack.defaults" -}}
{{- range $path, $default := (include "clipstack.contract" $ | fromJson).defaults -}}
{{- $parent := $.Values -}}
{{- $keys := splitList "." $path -}}
{{- range initial $keys -}}
{{- if kindIs "invalid" (index $parent .) }}{{ $_ := set $parent . (dict) }}{{ end -}}
{{- $parent = index $parent . -}}
{{- end -}}
{{- $key := last $keys -}}
{{- if not (kindIs "invalid" (index $parent $key)) -}}
{{- else if kindIs "invalid" $default }}{{ $_ := unset $parent $key -}}
{{- else }}{{ $_ := set $parent $key $default }}{{ end -}}
{{- end -}}
{{- $memory := printf "%dMi" (add .Values.bulk.memoryMiB .Values.bulk.processMemoryMiB) -}}
{{- $bulk := dict "cpu" (int .Values.bulk.cores) "memory" $memory -}}
{{- $_ := set .Values.bulk "resources" (dict "requests" $bulk "limits" $bulk) -}}
{{- end -}}

{{/* Whether Triton runs in the release: in Deployments, or beside bulk workers. */}}
{{- define "clipstack.runsTriton" -}}
{{- if or .Values.triton.enabled (include "clipstack.bulkTriton" .) }}true{{ end -}}
{{- end -}}

{{- define "clipstack.bulkTriton" -}}
{{- if and .Values.bulk.enabled (eq .Values.bulk.accelerator "gpu") }}true{{ end -}}
{{- end -}}

{{/* Text of at most 40 characters; a longer one ends in a hash. */}}
{{- define "clipstack.short" -}}
{{- if le (len .) 40 }}{{ trimSuffix "-" . }}{{ else }}{{ printf "%s-%s" (trunc 33 . | trimSuffix "-") (sha256sum . | trunc 6) }}{{ end -}}
{{- end -}}

{{/* Application name: value of the name label, and part of the object names. */}}
{{- define "clipstack.name" -}}
{{- include "clipstack.short" (default .Chart.Name .Values.nameOverride) -}}
{{- end -}}

{{/*
Prefix of object names: the release name, or the release and chart names; of a subchart always both, because several aliases of the chart may
be in one release. A prefix above 40 characters ends in a hash, because suffixes follow and names have at most 63.
*/}}
{{- define "clipstack.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := printf "%s-%s" .Release.Name $name -}}
{{- if .Values.fullnameOverride -}}
{{- $full = .Values.fullnameOverride -}}
{{- else if and .Chart.IsRoot (contains $name .Release.Name) -}}
{{- $full = .Release.Name -}}
{{- end -}}
{{- include "clipstack.short" $full -}}
{{- end -}}

{{/* Labels used by selectors. Arguments: root, component. */}}
{{- define "clipstack.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "clipstack.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Labels of every object. Arguments: root, component or "", labels of this object if it has some. */}}
{{- define "clipstack.labels" -}}
{{- $root := index . 0 -}}
{{- $own := include "clipstack.selectorLabels" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimAll "-_.") -}}
{{- toYaml (merge $own (rest . | rest | first | default dict | deepCopy) (deepCopy $root.Values.commonLabels)) -}}
{{- end -}}

{{/* Labels of a pod: selector labels and those of the values. Arguments: root, component. */}}
{{- define "clipstack.podLabels" -}}
{{- $root := index . 0 -}}
{{- $own := include "clipstack.selectorLabels" . | fromYaml -}}
{{- toYaml (merge $own (deepCopy (index $root.Values (index . 1)).podLabels) (deepCopy $root.Values.commonLabels)) -}}
{{- end -}}

{{/* Metadata of an object of a component. Arguments: root, component, labels of this object if it has some. */}}
{{- define "clipstack.metadata" -}}
{{- $root := index . 0 -}}
name: "{{ include "clipstack.fullname" $root }}-{{ index . 1 }}"
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "clipstack.labels" . | nindent 2 }}
{{- end -}}

{{/* Labels of a Deployment whose pods Kueue admits. Argument: values of the component. */}}
{{- define "clipstack.queueLabel" -}}
{{- with .queueName }}kueue.x-k8s.io/queue-name: {{ . | quote }}{{ end -}}
{{- end -}}

{{- define "clipstack.image" -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ required "image: a tag or a digest is required" .tag }}
{{- end -}}
{{- end -}}

{{/* Image of Triton: NVIDIA's, or the embed image for the emulator. */}}
{{- define "clipstack.tritonImage" -}}
{{- toJson (eq .Values.triton.server "emulator" | ternary .Values.embed.image .Values.triton.image) -}}
{{- end -}}

{{/* Name of the service account. Arguments: root, component. */}}
{{- define "clipstack.serviceAccount" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.serviceAccount.name -}}
{{ $root.Values.serviceAccount.name }}
{{- else if $root.Values.serviceAccount.create -}}
{{ include "clipstack.fullname" $root }}-{{ index . 1 }}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{/* Whole cores of a CPU quantity, at least 1: number of threads of a container. */}}
{{- define "clipstack.cores" -}}
{{- $text := toString . -}}
{{- $cores := hasSuffix "m" $text | ternary (divf (trimSuffix "m" $text | float64) 1000) (float64 $text) -}}
{{- max 1 (floor $cores | int) -}}
{{- end -}}

{{/* Update strategy of a Deployment. Arguments: root, whether an additional pod can be scheduled; without a spare GPU it cannot. */}}
{{- define "clipstack.strategy" -}}
type: RollingUpdate
rollingUpdate:
  {{- if index . 1 }}
  maxSurge: {{ (include "clipstack.contract" (index . 0) | fromJson).surge }}
  maxUnavailable: 0
  {{- else }}
  maxSurge: 0
  maxUnavailable: 1
  {{- end }}
{{- end -}}

{{/* Limits or requests of a container, including GPUs. Arguments: quantities, number of GPUs, name of the resource. */}}
{{- define "clipstack.quantities" -}}
{{- $all := dict -}}
{{- range $name, $value := index . 0 }}{{ $_ := set $all $name (toString $value) }}{{ end -}}
{{- $gpus := index . 1 | int -}}
{{- if gt $gpus 0 }}{{ $_ := set $all (index $ 2) (toString $gpus) }}{{ end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* Resources of the container of a server. Arguments: root, values of the component, number of GPUs. */}}
{{- define "clipstack.resources" -}}
{{- $it := index . 1 -}}
{{- $claims := and (gt (index . 2 | int) 0) $it.resourceClaimTemplate -}}
{{- $gpus := ternary 0 (index . 2) (not (empty $claims)) -}}
{{- $name := (index . 0).Values.gpuResourceName -}}
requests:
  {{- include "clipstack.quantities" (list $it.resources.requests $gpus $name) | nindent 2 }}
limits:
  {{- include "clipstack.quantities" (list $it.resources.limits $gpus $name) | nindent 2 }}
{{- if $claims }}
claims:
  - name: gpus
{{- end }}
{{- end -}}

{{/* Fields of the Service that depend on its type. Argument: its values. */}}
{{- define "clipstack.serviceType" -}}
type: {{ .type | quote }}
{{- if and (ne .type "ClusterIP") (ne .externalTrafficPolicy "Cluster") }}
externalTrafficPolicy: {{ .externalTrafficPolicy | quote }}
{{- end }}
{{- if eq .type "LoadBalancer" }}
{{- with .loadBalancerClass }}
loadBalancerClass: {{ . | quote }}
{{- end }}
{{- with .loadBalancerSourceRanges }}
loadBalancerSourceRanges:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Security context of every container: no privileges, read-only root file system. */}}
{{- define "clipstack.containerSecurity" -}}
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "clipstack.podSecurity" -}}
{{- $user := (include "clipstack.contract" $ | fromJson).user -}}
runAsNonRoot: true
{{- if .Values.fixedUser }}
runAsUser: {{ $user.uid }}
runAsGroup: {{ $user.gid }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Scheduling of pods. Arguments: root, component, GPUs per pod. */}}
{{- define "clipstack.scheduling" -}}
{{- $root := index . 0 -}}
{{- $it := index $root.Values (index . 1) -}}
{{- if and (gt (index . 2 | int) 0) $it.resourceClaimTemplate }}
resourceClaims:
  - name: gpus
    resourceClaimTemplateName: {{ $it.resourceClaimTemplate | quote }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $it.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with $it.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $it.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $it.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $it.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $it.topologySpread.enabled }}
topologySpreadConstraints:
  - maxSkew: {{ $it.topologySpread.maxSkew }}
    topologyKey: {{ $it.topologySpread.topologyKey | quote }}
    whenUnsatisfiable: {{ $it.topologySpread.whenUnsatisfiable | quote }}
    labelSelector:
      matchLabels:
        {{- include "clipstack.selectorLabels" . | nindent 8 }}
    # a rolling update spreads the new pods independently of the old ones
    matchLabelKeys: [{{ (include "clipstack.contract" $root | fromJson).templateHashLabel }}]
{{- end }}
{{- end -}}

{{/* PodDisruptionBudget. Arguments: root, component. */}}
{{- define "clipstack.budget" -}}
{{- $budget := (index (index . 0).Values (index . 1)).budget -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "clipstack.metadata" . | nindent 2 }}
spec:
  {{- if hasKey $budget "minAvailable" }}
  minAvailable: {{ $budget.minAvailable }}
  {{- else }}
  maxUnavailable: {{ default 1 $budget.maxUnavailable }}
  {{- end }}
  unhealthyPodEvictionPolicy: {{ $budget.unhealthyPodEvictionPolicy | quote }}
  selector:
    matchLabels:
      {{- include "clipstack.selectorLabels" . | nindent 6 }}
{{- end -}}

{{/* `behavior` of an autoscaler. Arguments: root, its values, GPUs per pod. */}}
{{- define "clipstack.behavior" -}}
{{- $scaling := index . 1 -}}
{{- if $scaling.behavior -}}
{{- toYaml $scaling.behavior -}}
{{- else if gt (index . 2 | int) 0 -}}
{{- $behavior := (include "clipstack.contract" (index . 0) | fromJson).gpuScaling -}}
{{- $_ := set $behavior.scaleDown "stabilizationWindowSeconds" (int $scaling.scaleDownWindowSeconds) -}}
{{- toYaml $behavior -}}
{{- else -}}
scaleDown:
  stabilizationWindowSeconds: {{ $scaling.scaleDownWindowSeconds }}
  selectPolicy: Max
  policies:
    - type: Percent
      value: 100
      periodSeconds: 15
{{- end -}}
{{- end -}}

{{/* Egress to DNS. */}}
{{- define "clipstack.dnsEgress" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end -}}

{{/* Whether TensorRT builds engines. */}}
{{- define "clipstack.compiles" -}}
{{- if and (eq .Values.triton.backend "tensorrt") (gt (int .Values.triton.gpus) 0) -}}true{{- end -}}
{{- end -}}

{{/* Maximum start time of a Triton server in seconds: TensorRT builds an engine of each tower on each GPU. */}}
{{- define "clipstack.tritonStart" -}}
{{- $times := (include "clipstack.contract" $ | fromJson).startSeconds -}}
{{- $towers := (include "clipstack.towers" . | fromJson).towers -}}
{{- $engines := include "clipstack.compiles" . | empty | ternary 0 (mul (int .Values.triton.gpus) (len $towers)) -}}
{{- .Values.triton.startSeconds | default (add $times.triton (mul $times.tritonEngine $engines)) -}}
{{- end -}}

{{/* Maximum start time of the embed server in seconds, until the models are loaded or a gateway responds to /healthz. */}}
{{- define "clipstack.embedStart" -}}
{{- .Values.embed.startSeconds | default (include "clipstack.contract" $ | fromJson).startSeconds.embed -}}
{{- end -}}

{{/* Progress deadline of a rollout in seconds: twice the start time, plus image pulls. A gateway is ready with its first Triton server. */}}
{{- define "clipstack.tritonDeadline" -}}
{{- add (mul 2 (include "clipstack.tritonStart" .)) 60 .Values.triton.imagePullSeconds -}}
{{- end -}}

{{- define "clipstack.embedDeadline" -}}
{{- $tritons := eq .Values.embed.backend "triton" | ternary (add (mul 2 (include "clipstack.tritonStart" .)) .Values.triton.imagePullSeconds) 0 -}}
{{- add (mul 2 (include "clipstack.embedStart" .)) 60 .Values.embed.imagePullSeconds $tritons -}}
{{- end -}}
