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
{{- range $index, $spec := $v.modelSpecs -}}
{{- if hasKey $contract.catalogue $spec.name -}}
{{- fail (printf "modelSpecs.%d.name must not be the name of a model in the catalogue, got %s" $index $spec.name) -}}
{{- end -}}
{{- $modalities := list -}}
{{- range $modality := list "image" "text" }}{{ if hasKey $spec.towers $modality }}{{ $modalities = append $modalities $modality }}{{ end }}{{ end -}}
{{- $tokenizer := dig "text" "input" "tokenizer" dict $spec.towers -}}
{{- $file := eq (dig "kind" "" $tokenizer) "sentencepiece" | ternary (dig "file" "" $tokenizer) "" -}}
{{- $_ := set $known $spec.name (dict "width" $spec.embedding.width "modalities" $modalities "tokenizer" $file) -}}
{{- end -}}
{{- $selected := list -}}
{{- $names := list -}}
{{- range $index, $entry := $v.models -}}
{{- $name := splitList ":" $entry | first -}}
{{- if not (hasKey $known $name) -}}
{{- fail (printf "models.%d must be one of %s, or the name of one of modelSpecs, got %s" $index $catalogue $entry) -}}
{{- end -}}
{{- if has $name $names }}{{ fail (printf "models.%d must not repeat a model, got %s" $index $entry) }}{{ end -}}
{{- $names = append $names $name -}}
{{- $has := (get $known $name).modalities -}}
{{- $entries := list $name -}}
{{- range $has }}{{ $entries = append $entries (printf "%s:%s" $name .) }}{{ end -}}
{{- if not (has $entry $entries) -}}
{{- fail (printf "models.%d must be %s, got %s" $index ($entries | join " or ") $entry) -}}
{{- end -}}
{{- range $modality := $has -}}
{{- if or (eq $entry $name) (eq $entry (printf "%s:%s" $name $modality)) -}}
{{- $selected = append $selected (dict "model" $name "modality" $modality) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $towers := list -}}
{{- $compiled := and $v.triton.enabled (eq $v.triton.backend "tensorrt") -}}
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
