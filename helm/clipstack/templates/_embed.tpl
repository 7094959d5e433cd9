{{/* Settings of the embed server, as environment variables. */}}
{{- define "clipstack.embedEnv" -}}
{{- $contract := include "clipstack.contract" $ | fromJson -}}
{{- $embed := .Values.embed -}}
- name: BACKEND
  value: {{ $embed.backend | quote }}
{{- if eq $embed.backend "onnxruntime" }}
- name: EXECUTION_PROVIDER
  value: {{ ternary "cuda" "cpu" (eq $embed.accelerator "gpu") | quote }}
{{- with get ($embed.resources.limits | default dict) "cpu" }}
# number of threads from the CPU limit, not from the cores of the node
- name: INTRA_OP_THREADS
  value: {{ include "clipstack.cores" . | quote }}
{{- end }}
{{- else }}
- name: TRITON_GRPC_URLS
  value: "{{ include "clipstack.fullname" . }}-triton-grpc:{{ $contract.ports.tritonGrpc }}"
- name: TRITON_MODEL_KIND
  value: {{ include "clipstack.servedKind" . | quote }}
{{- end }}
- name: MODELS
  value: {{ .Values.models | join "," | quote }}
{{- with .Values.modelSpecs }}
- name: MODEL_SPECS
  value: {{ toJson . | quote }}
{{- end }}
{{- if ne $embed.service.ipFamilyPolicy "SingleStack" }}
- name: HOST
  value: "::"
{{- end }}
- name: PORT
  value: {{ $contract.ports.embed | quote }}
{{- with $embed.auth.existingSecret }}
- name: API_KEY
  valueFrom:
    secretKeyRef:
      name: {{ . | quote }}
      key: {{ $embed.auth.existingSecretKey | quote }}
{{- else }}
- name: ALLOW_ANONYMOUS
  value: "true"
{{- end }}
- name: SHUTDOWN_GRACE_SECONDS
  value: {{ $embed.graceSeconds | quote }}
{{- with $embed.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
