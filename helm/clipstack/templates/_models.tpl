{{/*
Towers of the served models in the order of `models`, images first, as a JSON list under `towers`. Fails with one line for an invalid
model. Fields: `model`, `modality`, `width`; `preprocessing`, its checksum in the fingerprint; `tokenizer`, its file beside the weights; `suffix` of object names; `file`, folder of the
weights in a model repository and key of `model.towers`; `triton`, name in Triton; `sha256`, `url` and `subPath` of the weights;
`tokenizerUrl` and `tokenizerSha256`.
*/}}
{{- define "clipstack.towers" -}}
{{- $v := .Values -}}
{{- $contract := include "clipstack.contract" $ | fromJson -}}
{{- $known := $contract.catalogue -}}
{{- $catalogue := keys $known | sortAlpha | join ", " -}}
{{- $selected := list -}}
{{- $names := list -}}
{{- range $index, $given := $v.models -}}
{{- $entry := kindIs "string" $given | ternary (dict "name" $given) $given -}}
{{- $name := $entry.name -}}
{{- if hasKey $entry "towers" -}}
{{- if hasKey $contract.catalogue $name -}}
{{- fail (printf "models.%d.name must not be the name of a model in the catalogue, got %s" $index $name) -}}
{{- end -}}
{{- $tokenizer := dig "text" "input" "tokenizer" dict $entry.towers -}}
{{- $file := eq (dig "kind" "" $tokenizer) "sentencepiece" | ternary (dig "file" "" $tokenizer) "" -}}
{{- $_ := set $known $name (dict "width" $entry.embedding.width "modalities" (keys $entry.towers | sortAlpha) "tokenizer" $file) -}}
{{- end -}}
{{- if not (hasKey $known $name) -}}
{{- fail (printf "models.%d must be one of %s, or the spec of a model with its name, got %s" $index $catalogue $name) -}}
{{- end -}}
{{- if has $name $names }}{{ fail (printf "models.%d must not repeat a model, got %s" $index $name) }}{{ end -}}
{{- $names = append $names $name -}}
{{- $has := (get $known $name).modalities -}}
{{- $served := $entry.modalities | default $has -}}
{{- range $served -}}
{{- if not (has . $has) }}{{ fail (printf "models.%d.modalities must be %s, as %s has, got %s" $index ($has | join ", ") $name .) }}{{ end -}}
{{- end -}}
{{- range $modality := $has -}}
{{- if has $modality $served }}{{ $selected = append $selected (dict "model" $name "modality" $modality) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $towers := list -}}
{{- $compiled := and (include "clipstack.runsTriton" . | eq "true") (eq $v.triton.backend "tensorrt") -}}
{{- $weights := $v.model -}}
{{- $isOnly := eq (len $selected) 1 -}}
{{- range $tower := $selected -}}
{{- $facts := get $known $tower.model -}}
{{- $folder := replace "-" "_" $tower.model -}}
{{- $isText := eq $tower.modality "text" -}}
{{- $file := printf "%s%s" $folder (get $contract.suffixes ($isText | ternary "text" $v.triton.modelKind)) -}}
{{- $own := get $weights.towers $file | default dict -}}
{{- $suffix := $isText | ternary (printf "-%s-text" $tower.model) (eq $tower.model $contract.defaultModel | ternary "" (printf "-%s" $tower.model)) -}}
{{- $all := dict
  "width" $facts.width
  "preprocessing" (dig "preprocessing" $tower.modality "" $facts)
  "tokenizer" ($isText | ternary $facts.tokenizer "")
  "suffix" $suffix
  "file" $file
  "triton" ($compiled | ternary (printf "%s%s" $folder (get $contract.suffixes ($isText | ternary "text-trt" "trt"))) $file)
  "sha256" ($own.sha256 | default ($isOnly | ternary $weights.sha256 ""))
  "url" ($own.url | default ($isOnly | ternary $weights.init.url ""))
  "subPath" (hasKey $own "subPath" | ternary $own.subPath ($isOnly | ternary $weights.pvc.subPath (printf "%s/1" $file)))
  "tokenizerUrl" (dig "tokenizer" "url" "" $own)
  "tokenizerSha256" (dig "tokenizer" "sha256" "" $own) -}}
{{- $towers = append $towers (merge $all $tower) -}}
{{- end -}}
{{- dict "towers" $towers | toJson -}}
{{- end -}}

{{/* File with the list of models, without its last line feed. */}}
{{- define "clipstack.modelsText" -}}
{{- toPrettyJson .Values.models -}}
{{- end -}}

{{/* Model kind of the image towers in Triton: setting TRITON_MODEL_KIND of a gateway. */}}
{{- define "clipstack.servedKind" -}}
{{- eq .Values.triton.backend "tensorrt" | ternary "trt" .Values.triton.modelKind -}}
{{- end -}}

{{/* Whether a component is a gateway. Arguments: root, component. */}}
{{- define "clipstack.isGateway" -}}
{{- if and (eq (index . 1) "embed") (eq (index . 0).Values.embed.backend "triton") }}true{{ end -}}
{{- end -}}

{{/* Towers whose weights or tokenizer a pod mounts, as a JSON list under `towers`. Arguments: root, component. */}}
{{- define "clipstack.mountedTowers" -}}
{{- $root := index . 0 -}}
{{- $mounted := list -}}
{{- $isGateway := include "clipstack.isGateway" . -}}
{{- if ne $root.Values.model.weights "image" -}}
{{- range $tower := (include "clipstack.towers" $root | fromJson).towers -}}
{{- /* a gateway reads only the tokenizers */ -}}
{{- if or (not $isGateway) $tower.tokenizer }}{{ $mounted = append $mounted $tower }}{{ end -}}
{{- end -}}
{{- end -}}
{{- dict "towers" $mounted | toJson -}}
{{- end -}}
