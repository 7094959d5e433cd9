{{/*
Init containers that download or verify the files of the towers, in the embed image; in Triton's if that contains the weights. A gateway
needs only the tokenizers, and Triton needs none.
Arguments: root, component.
*/}}
{{- define "clipstack.weightsInit" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $model := $root.Values.model -}}
{{- $isInit := eq $model.weights "init" -}}
{{- $isGateway := include "clipstack.isGateway" . -}}
{{- $contract := include "clipstack.contract" $root | fromJson -}}
{{- $towers := (include "clipstack.towers" $root | fromJson).towers -}}
{{- $isOnly := eq (len $towers) 1 -}}
{{- $containers := list -}}
{{- if and (eq $model.weights "image") (eq $component "triton") -}}
{{- range $tower := $towers -}}
{{- if $tower.sha256 }}{{ $containers = append $containers (include "clipstack.imageCheck" (list $root $tower)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range $tower := (include "clipstack.mountedTowers" . | fromJson).towers -}}
{{- if and (not $isGateway) (or $isInit $tower.sha256) -}}
{{- $key := $isOnly | ternary $model.init.existingSecretKey $tower.file -}}
{{- $name := "" -}}
{{- if and $isInit (eq $component "triton") (contains $contract.tensorrtFile (include "clipstack.modelConfig" (list $root $tower))) -}}
{{- $name = $contract.tensorrtFile -}}
{{- end -}}
{{- $file := dict "name" "" "file" $name "url" $tower.url "sha256" $tower.sha256 "key" $key -}}
{{- $containers = append $containers (include "clipstack.fileInit" (list $root $component $tower $file)) -}}
{{- end -}}
{{- if and $isInit $tower.tokenizer (eq $component "embed") -}}
{{- $file := dict "name" "-tokenizer" "file" $tower.tokenizer "url" $tower.tokenizerUrl "sha256" $tower.tokenizerSha256 "key" (printf "%s.tokenizer" $tower.file) -}}
{{- $containers = append $containers (include "clipstack.fileInit" (list $root $component $tower $file)) -}}
{{- end -}}
{{- end -}}
{{- if $containers -}}
initContainers:
{{- range $containers }}
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Init container of one file. Arguments: root, component, tower, file (`name`, `file`, `url`, `sha256`, `key` of the Secret). */}}
{{- define "clipstack.fileInit" -}}
{{- $root := index . 0 -}}
{{- $tower := index . 2 -}}
{{- $file := index . 3 -}}
{{- $model := $root.Values.model -}}
{{- $isInit := eq $model.weights "init" -}}
{{- $image := $root.Values.embed.image -}}
- name: weights{{ $tower.suffix }}{{ $file.name }}
  image: {{ include "clipstack.image" $image | quote }}
  imagePullPolicy: {{ $image.pullPolicy | quote }}
  args:
    {{- if $isInit }}
    - fetch-weights
    - --url={{ $model.init.existingSecret | empty | ternary $file.url "$(WEIGHTS_URL)" }}
    - --max-bytes={{ include "clipstack.bytes" $model.init.sizeLimit }}
    - --timeout-seconds={{ int $model.init.timeoutSeconds }}
    {{- else }}
    - check-weights
    {{- end }}
    - --folder=/weights
    {{- with $file.file }}
    - --file={{ . }}
    {{- end }}
    - --sha256={{ $file.sha256 }}
  {{- if and $isInit $model.init.existingSecret }}
  env:
    - name: WEIGHTS_URL
      valueFrom:
        secretKeyRef:
          name: {{ $model.init.existingSecret | quote }}
          key: {{ $file.key | quote }}
  {{- end }}
  {{- include "clipstack.initRest" (list $root (index . 1)) | nindent 2 }}
    {{- include "clipstack.towerMount" (list $root $tower "/weights" (not $isInit)) | nindent 4 }}
{{- end -}}

{{/* Init container that verifies the file of a tower in Triton's image. Arguments: root, tower. */}}
{{- define "clipstack.imageCheck" -}}
{{- $root := index . 0 -}}
{{- $tower := index . 1 -}}
{{- $contract := include "clipstack.contract" $root | fromJson -}}
{{- $image := include "clipstack.tritonImage" $root | fromJson -}}
{{- $file := contains $contract.tensorrtFile (include "clipstack.modelConfig" (list $root $tower)) | ternary $contract.tensorrtFile "model.onnx" -}}
- name: weights{{ $tower.suffix }}
  image: {{ include "clipstack.image" $image | quote }}
  imagePullPolicy: {{ $image.pullPolicy | quote }}
  command: [sh, -c]
  args:
    - |
      {{- $root.Files.Get "files/check-weights.sh" | nindent 6 }}
    - check-weights
    - "{{ $contract.repository }}/{{ $tower.triton }}/1/{{ $file }}"
    - {{ $tower.sha256 | quote }}
  {{- include "clipstack.initRest" (list $root "triton") | nindent 2 }}
{{- end -}}

{{/* Resources, security context and the first mount of an init container. Arguments: root, component. */}}
{{- define "clipstack.initRest" -}}
{{- $root := index . 0 -}}
resources:
  {{- toYaml (index $root.Values (index . 1)).resources | nindent 2 }}
securityContext:
  {{- include "clipstack.containerSecurity" $root | nindent 2 }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
{{- end -}}

{{/* Quantity in whole bytes. */}}
{{- define "clipstack.bytes" -}}
{{- include "clipstack.amount" . | float64 | floor | printf "%.0f" -}}
{{- end -}}

{{/* Quantity in bytes or cores: text with a unit, or a number. */}}
{{- define "clipstack.amount" -}}
{{- $text := kindIs "string" . | ternary . (printf "%f" (float64 .)) -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
  "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- mulf (regexFind "^[0-9.]+" $text) (get $units (regexFind "[a-zA-Z]*$" $text)) | printf "%f" -}}
{{- end -}}

{{/* Volume of a tower's weights: one claim for all towers, or one download per tower. Arguments: root, tower. */}}
{{- define "clipstack.weightsName" -}}
weights{{ eq (index . 0).Values.model.weights "init" | ternary (index . 1).suffix "" }}
{{- end -}}

{{/* Mount of a tower's weights. Arguments: root, tower, path, whether it is read-only. */}}
{{- define "clipstack.towerMount" -}}
{{- $root := index . 0 -}}
{{- $tower := index . 1 -}}
- name: {{ include "clipstack.weightsName" (list $root $tower) | quote }}
  mountPath: {{ index . 2 | quote }}
  {{- if index . 3 }}
  readOnly: true
  {{- end }}
  {{- if and (eq $root.Values.model.weights "pvc") $tower.subPath }}
  subPath: {{ $tower.subPath | quote }}
  {{- end }}
{{- end -}}

{{/* Mounts of the weights in the model repository of a pod. Arguments: root, component. */}}
{{- define "clipstack.weightsMount" -}}
{{- $root := index . 0 -}}
{{- $contract := include "clipstack.contract" $root | fromJson -}}
{{- $mounts := list -}}
{{- $component := index . 1 -}}
{{- range $tower := (include "clipstack.mountedTowers" . | fromJson).towers -}}
{{- $folder := eq $component "triton" | ternary $tower.triton $tower.file -}}
{{- $mounts = append $mounts (include "clipstack.towerMount" (list $root $tower (printf "%s/%s/1" $contract.repository $folder) true)) -}}
{{- end -}}
{{- $mounts | join "\n" -}}
{{- end -}}

{{/* Volumes of the weights of a pod. Arguments: root, component. */}}
{{- define "clipstack.weightsVolume" -}}
{{- $model := (index . 0).Values.model -}}
{{- $root := index . 0 -}}
{{- $towers := (include "clipstack.mountedTowers" . | fromJson).towers -}}
{{- if and $towers (eq $model.weights "pvc") -}}
- name: weights
  persistentVolumeClaim:
    claimName: {{ $model.pvc.claimName | quote }}
    readOnly: true
{{- else -}}
{{- $volumes := list -}}
{{- range $tower := $towers -}}
{{- $volumes = append $volumes (printf "- name: %s\n  emptyDir:\n    sizeLimit: %v" (include "clipstack.weightsName" (list $root $tower)) $model.init.sizeLimit) -}}
{{- end -}}
{{- $volumes | join "\n" -}}
{{- end -}}
{{- end -}}

{{/* Egress rules of a component, as a JSON list under `rules`: downloads, and those of the values. Arguments: root, component. */}}
{{- define "clipstack.egress" -}}
{{- $args := . -}}
{{- $root := index . 0 -}}
{{- $isGateway := include "clipstack.isGateway" . -}}
{{- $rules := list -}}
{{- $all := list -}}
{{- if eq $root.Values.model.weights "init" -}}
{{- range $tower := (include "clipstack.mountedTowers" . | fromJson).towers -}}
{{- $urls := empty $isGateway | ternary (list $tower.url) list -}}
{{- if and $tower.tokenizer (eq (index $args 1) "embed") }}{{ $urls = append $urls $tower.tokenizerUrl }}{{ end -}}
{{- $all = concat $all $urls -}}
{{- end -}}
{{- end -}}
{{- with $root.Values.tracing.endpoint }}{{ $all = append $all . }}{{ end -}}
{{- if eq (index $args 1) "embed" -}}
{{- range $host := $root.Values.embed.server.imageUrlHosts }}{{ $all = append $all (contains "://" $host | ternary $host (printf "https://%s" $host)) }}{{ end -}}
{{- end -}}
{{- range $url := $all -}}
{{- /* not urlParse, whose errors contain the URL and its secrets */ -}}
{{- $origin := regexFind "^https?://[^/?]+" $url -}}
{{- $port := regexFind ":[0-9]+$" $origin | trimPrefix ":" | default (ternary "80" "443" (hasPrefix "http:" $origin)) | int -}}
{{- $rule := dict "ports" (list (dict "protocol" "TCP" "port" $port)) -}}
{{- if not (has $rule $rules) }}{{ $rules = append $rules $rule }}{{ end -}}
{{- end -}}
{{- dict "rules" (concat $rules $root.Values.networkPolicy.egress) | toJson -}}
{{- end -}}
