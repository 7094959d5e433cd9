{{/* The container that brings or checks the weights before the server starts. Takes a list: the root, the component. */}}
{{- define "clipstack.weightsInit" -}}
{{- end -}}

{{/* Where a server of a backend reads the weights. Takes a list: the root, the backend. */}}
{{- define "clipstack.weightsMount" -}}
{{- $root := index . 0 -}}
{{- $contract := include "clipstack.contract" nil | fromJson -}}
{{- if ne $root.Values.model.weights "image" }}
- name: weights
  mountPath: {{ $contract.repository }}/{{ index $contract.models (index . 1) }}/1
  readOnly: true
  {{- if and (eq $root.Values.model.weights "pvc") $root.Values.model.pvc.subPath }}
  subPath: {{ $root.Values.model.pvc.subPath }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "clipstack.weightsVolume" -}}
{{- if eq .Values.model.weights "pvc" }}
- name: weights
  persistentVolumeClaim:
    claimName: {{ .Values.model.pvc.claimName }}
{{- else if eq .Values.model.weights "init" }}
- name: weights
  emptyDir:
    sizeLimit: {{ .Values.model.init.sizeLimit }}
{{- end }}
{{- end -}}
