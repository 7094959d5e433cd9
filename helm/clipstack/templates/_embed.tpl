{{/* Texts of the variables in `embed.server`, by setting. */}}
{{- define "clipstack.serverVariables" -}}
{{- $set := dict -}}
{{- range $name, $value := .Values.embed.server -}}
{{- if kindIs "slice" $value }}{{ $_ := set $set $name (join "," $value) }}
{{- else if kindIs "string" $value }}{{ $_ := set $set $name $value }}
{{- else if not (kindIs "invalid" $value) -}}
{{- /* Helm parses whole numbers as floating-point numbers */ -}}
{{- $_ := set $set $name (eq (float64 $value) (floor $value) | ternary (int64 $value | toString) ($value | toString)) -}}
{{- end -}}
{{- end -}}
{{- toJson $set -}}
{{- end -}}

{{/* Settings of the embed server, as environment variables. */}}
{{- define "clipstack.embedEnv" -}}
{{- $contract := include "clipstack.contract" $ | fromJson -}}
{{- $embed := .Values.embed -}}
{{- $set := (include "clipstack.serverVariables" . | fromJson) -}}
- name: BACKEND
  value: {{ $embed.backend | quote }}
{{- if eq $embed.backend "onnxruntime" }}
- name: EXECUTION_PROVIDER
  value: {{ ternary "cuda" "cpu" (eq $embed.accelerator "gpu") | quote }}
{{- if not (hasKey $set "intraOpThreads") }}
{{- with get ($embed.resources.limits | default dict) "cpu" }}
# number of threads from the CPU limit, not from the cores of the node
- name: INTRA_OP_THREADS
  value: {{ include "clipstack.cores" . | quote }}
{{- end }}
{{- end }}
{{- else }}
- name: TRITON_GRPC_URLS
  value: "{{ include "clipstack.fullname" . }}-triton-grpc:{{ $contract.ports.tritonGrpc }}"
- name: TRITON_MODEL_KIND
  value: {{ include "clipstack.servedKind" . | quote }}
{{- end }}
- name: MODELS_FILE
  value: {{ $contract.modelsFile | quote }}
{{- if ne $embed.service.ipFamilyPolicy "SingleStack" }}
- name: HOST
  value: "::"
{{- end }}
- name: PORT
  value: {{ $contract.ports.embed | quote }}
{{- if $embed.tls.secretName }}
- name: TLS_CERT_FILE
  value: /etc/clipstack/tls/tls.crt
- name: TLS_KEY_FILE
  value: /etc/clipstack/tls/tls.key
{{- end }}
{{- if $embed.auth.keysSecret }}
- name: API_KEYS_FILE
  value: /etc/clipstack/keys/keys.json
{{- else if $embed.auth.existingSecret }}
- name: API_KEY
  valueFrom:
    secretKeyRef:
      name: {{ $embed.auth.existingSecret | quote }}
      key: {{ $embed.auth.existingSecretKey | quote }}
{{- else }}
- name: ALLOW_ANONYMOUS
  value: "true"
{{- end }}
- name: SHUTDOWN_GRACE_SECONDS
  value: {{ $embed.graceSeconds | quote }}
{{- with .Values.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: http/protobuf
- name: OTEL_SERVICE_NAME
  value: "{{ include "clipstack.fullname" $ }}-embed"
- name: OTEL_TRACES_SAMPLER
  value: parentbased_traceidratio
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ $.Values.tracing.ratio | quote }}
{{- end }}
{{- range $name, $value := $set }}
- name: {{ $name | snakecase | upper }}
  value: {{ $value | quote }}
{{- end }}
{{- with $embed.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Secrets of the embed server that are mounted as folders, so that changes are seen: their names by their folders. */}}
{{- define "clipstack.embedSecrets" -}}
{{- $embed := .Values.embed -}}
{{- $secrets := dict -}}
{{- with $embed.tls.secretName }}{{ $_ := set $secrets "tls" . }}{{ end -}}
{{- with $embed.auth.keysSecret }}{{ $_ := set $secrets "keys" . }}{{ end -}}
{{- toJson $secrets -}}
{{- end -}}

{{/* Probe of the embed server. */}}
{{- define "clipstack.embedProbe" -}}
{{- $root := index . 0 -}}
httpGet:
  path: {{ index . 1 | quote }}
  port: http
  {{- if $root.Values.embed.tls.secretName }}
  scheme: HTTPS
  {{- end }}
{{- end -}}
