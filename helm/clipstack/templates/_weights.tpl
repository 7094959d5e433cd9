{{/* Init container that downloads or verifies the weights, in the embed image. Arguments: root, component. */}}
{{- define "clipstack.weightsInit" -}}
{{- $root := index . 0 -}}
{{- $model := $root.Values.model -}}
{{- $it := index $root.Values (index . 1) -}}
{{- $image := $root.Values.embed.image -}}
{{- if or (eq $model.weights "init") (and (eq $model.weights "pvc") $model.sha256) -}}
initContainers:
  - name: weights
    image: {{ include "clipstack.image" $image }}
    imagePullPolicy: {{ $image.pullPolicy }}
    args:
      {{- if eq $model.weights "init" }}
      - fetch-weights
      - --url={{ $model.init.existingSecret | empty | ternary $model.init.url "$(WEIGHTS_URL)" }}
      - --max-bytes={{ include "clipstack.bytes" $model.init.sizeLimit }}
      - --timeout-seconds={{ int $model.init.timeoutSeconds }}
      {{- else }}
      - check-weights
      {{- end }}
      - --folder=/weights
      - --sha256={{ $model.sha256 }}
    {{- if and (eq $model.weights "init") $model.init.existingSecret }}
    env:
      - name: WEIGHTS_URL
        valueFrom:
          secretKeyRef:
            name: {{ $model.init.existingSecret }}
            key: {{ $model.init.existingSecretKey }}
    {{- end }}
    resources:
      {{- toYaml $it.resources | nindent 6 }}
    securityContext:
      {{- include "clipstack.containerSecurity" . | nindent 6 }}
    volumeMounts:
      - name: tmp
        mountPath: /tmp
      - name: weights
        mountPath: /weights
        {{- if eq $model.weights "pvc" }}
        readOnly: true
        {{- with $model.pvc.subPath }}
        subPath: {{ . }}
        {{- end }}
        {{- end }}
{{- end -}}
{{- end -}}

{{/* Quantity in whole bytes: text with a unit, or a number. */}}
{{- define "clipstack.bytes" -}}
{{- $text := kindIs "string" . | ternary . (printf "%f" (float64 .)) -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
  "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- mulf (regexFind "^[0-9.]+" $text) (get $units (regexFind "[a-zA-Z]*$" $text)) | floor | printf "%.0f" -}}
{{- end -}}

{{/* Path of the weights for a backend. Arguments: root, backend. */}}
{{- define "clipstack.weightsMount" -}}
{{- $root := index . 0 -}}
{{- $contract := include "clipstack.contract" nil | fromJson -}}
{{- if ne $root.Values.model.weights "image" -}}
- name: weights
  mountPath: {{ $contract.repository }}/{{ include "clipstack.model" . }}/1
  readOnly: true
  {{- if and (eq $root.Values.model.weights "pvc") $root.Values.model.pvc.subPath }}
  subPath: {{ $root.Values.model.pvc.subPath }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "clipstack.weightsVolume" -}}
{{- if eq .Values.model.weights "pvc" -}}
- name: weights
  persistentVolumeClaim:
    claimName: {{ .Values.model.pvc.claimName }}
    readOnly: true
{{- else if eq .Values.model.weights "init" -}}
- name: weights
  emptyDir:
    sizeLimit: {{ .Values.model.init.sizeLimit }}
{{- end -}}
{{- end -}}
