{{/*
What the schema of the values cannot say: one line for the first combination that cannot work, in the words of the values.
Says nothing when all is well.
*/}}
{{- define "clipstack.checks" -}}
{{- $contract := include "clipstack.contract" nil | fromJson -}}
{{- $v := .Values -}}
{{- if not (or $v.embed.enabled $v.triton.enabled) -}}
{{- fail "embed.enabled or triton.enabled must be true: nothing would be deployed" -}}
{{- end -}}

{{- $full := include "clipstack.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $full) -}}
{{- fail (printf "fullnameOverride, or the release with nameOverride, must be a-z, 0-9 and -, with a letter first and no - last: Services are named after it, got %s" $full) -}}
{{- end -}}

{{- /* weights */ -}}
{{- if and (eq $v.model.weights "pvc") (not $v.model.pvc.claimName) -}}
{{- fail "model.pvc.claimName is required with model.weights pvc" -}}
{{- end -}}
{{- if eq $v.model.weights "init" -}}
{{- $init := $v.model.init -}}
{{- if not (or $init.url $init.existingSecret) -}}{{- fail "model.init.url or model.init.existingSecret is required with model.weights init" -}}{{- end -}}
{{- if and $init.url $init.existingSecret -}}{{- fail "model.init must have url or existingSecret, not both" -}}{{- end -}}
{{- /* it may have a secret, so it is not repeated */ -}}
{{- if and $init.url (not (regexMatch "^https?://(\\[[0-9A-Fa-f:.]+\\]|[^\\s/\\\\@?#:]+)(:[0-9]+)?(/[^\\s?]*)?$" $init.url)) -}}
{{- fail "model.init.url must be http://… or https://…, without a user, a password or a query: an address with a secret is for a Secret, which model.init.existingSecret names" -}}
{{- end -}}
{{- if eq (include "clipstack.bytes" $v.model.init.sizeLimit) "0" -}}
{{- fail (printf "model.init.sizeLimit must be at least 1 byte with model.weights init, got %v" $v.model.init.sizeLimit) -}}
{{- end -}}
{{- if not $v.model.sha256 -}}{{- fail "model.sha256 is required with model.weights init: what comes over the network is checked" -}}{{- end -}}
{{- end -}}

{{- if $v.embed.enabled -}}
{{- $auth := $v.embed.auth -}}
{{- $service := $v.embed.service -}}
{{- if and (ne $service.type "ClusterIP") (not $auth.existingSecret) (not $auth.allowAnonymous) -}}
{{- fail (printf "embed.auth.existingSecret is required where embed.service.type is %s (or embed.auth.allowAnonymous: true where something else keeps strangers out)" $service.type) -}}
{{- end -}}
{{- if and $auth.existingSecret $auth.allowAnonymous -}}
{{- fail "embed.auth must have existingSecret or allowAnonymous, not both" -}}
{{- end -}}
{{- if and (eq $service.type "ClusterIP") $service.nodePort -}}
{{- fail "embed.service.nodePort needs embed.service.type NodePort or LoadBalancer, got ClusterIP" -}}
{{- end -}}
{{- if eq $v.embed.backend "triton" -}}
{{- if not $v.triton.enabled -}}
{{- fail "triton.enabled must be true with embed.backend triton: the gateway asks the Tritons of this release" -}}
{{- end -}}
{{- if eq $v.embed.accelerator "gpu" -}}
{{- fail "embed.accelerator must be cpu with embed.backend triton: a gateway uses no GPU, got gpu" -}}
{{- end -}}
{{- end -}}
{{- range $it := $v.embed.extraEnv -}}
{{- if has $it.name $contract.ownEnv -}}
{{- fail (printf "embed.extraEnv must not set %s: the chart does" $it.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if $v.triton.enabled -}}
{{- $triton := $v.triton -}}
{{- if and (eq $triton.server "emulator") (gt (int $triton.gpus) 0) -}}
{{- fail (printf "triton.gpus must be 0 with triton.server emulator, which computes on the CPU, got %v" $triton.gpus) -}}
{{- end -}}
{{- if and (eq $v.model.weights "image") (eq $triton.server "tritonserver") (eq $triton.image.repository $contract.tritonRepository) -}}
{{- fail (printf "model.weights must be pvc or init with the image %s, which has none (docs/images.md builds one that has), got image" $contract.tritonRepository) -}}
{{- end -}}
{{- if and (not $triton.modelConfig.variant) (not (hasKey $contract.variants (toString $triton.gpus))) -}}
{{- fail (printf "triton.modelConfig.variant and .text are required for %v GPUs: there are configurations for %s" $triton.gpus (keys $contract.variants | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $config := $triton.modelConfig -}}
{{- if and $config.variant (not $config.text) (ne $config.variant (get $contract.variants (toString $triton.gpus))) -}}
{{- fail (printf "triton.modelConfig.text is required for %v GPUs with triton.modelConfig.variant %s, whose configuration is for another number" $triton.gpus $config.variant) -}}
{{- end -}}
{{- $model := index $contract.models $triton.backend -}}
{{- with $triton.modelConfig.text -}}
{{- if not (regexMatch (printf `(?m)^\s*name\s*:\s*"%s"` $model) .) -}}
{{- fail (printf "triton.modelConfig.text must be the configuration of %s (name: \"%s\")" $model $model) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $triton.service.type "ClusterIP") (not $triton.allowUnauthenticated) -}}
{{- fail (printf "triton.allowUnauthenticated must be true where triton.service.type is %s: Triton asks nobody who they are" $triton.service.type) -}}
{{- end -}}
{{- if and (ne $triton.service.type "ClusterIP") (eq $v.model.weights "image") -}}
{{- fail (printf "triton.service.type must be ClusterIP with model.weights image: who reaches Triton could load and unload models, got %s" $triton.service.type) -}}
{{- end -}}
{{- $compiles := include "clipstack.compiles" . -}}
{{- if and $triton.engineCache.enabled (not $compiles) -}}
{{- fail "triton.engineCache.enabled must be false where TensorRT builds nothing (triton.backend tensorrt and GPUs)" -}}
{{- end -}}
{{- if and $triton.engineCache.enabled (ne $v.model.weights "image") (not $v.model.sha256) -}}
{{- fail "model.sha256 is required with triton.engineCache: engines of other weights would be used" -}}
{{- end -}}
{{- if and $triton.engineCache.enabled (eq $v.model.weights "image") (not $triton.image.digest) -}}
{{- fail "triton.image.digest is required with triton.engineCache and model.weights image: a tag may get other weights, and engines of the old ones would be used" -}}
{{- end -}}
{{- $scaling := $triton.autoscaling -}}
{{- if and $scaling.enabled (eq $scaling.metric "queue-time") (eq $scaling.source "keda") (not $scaling.prometheus.url) -}}
{{- fail "triton.autoscaling.prometheus.url is required with triton.autoscaling.source keda" -}}
{{- end -}}
{{- end -}}

{{- range $component := list "embed" "triton" -}}
{{- $it := index $v $component -}}
{{- if $it.enabled -}}
{{- $scaling := $it.autoscaling -}}
{{- $fewest := $it.replicas | int -}}
{{- $most := $fewest -}}
{{- if $scaling.enabled -}}
{{- $fewest = $scaling.minReplicas | int -}}
{{- $most = $scaling.maxReplicas | int -}}
{{- if gt $fewest $most -}}
{{- fail (printf "%s.autoscaling.minReplicas (%d) must not exceed maxReplicas (%d)" $component $fewest $most) -}}
{{- end -}}
{{- if and (eq (default "cpu" $scaling.metric) "cpu") (not (get ($it.resources.requests | default dict) "cpu")) -}}
{{- fail (printf "%s.resources.requests.cpu is required for autoscaling on CPU: it is what the percentage is of" $component) -}}
{{- end -}}
{{- end -}}
{{- $budget := $it.budget -}}
{{- if $budget.enabled -}}
{{- if and (hasKey $budget "minAvailable") (hasKey $budget "maxUnavailable") -}}
{{- fail (printf "%s.budget must set either maxUnavailable or minAvailable, got both" $component) -}}
{{- end -}}
{{- if and (hasKey $budget "minAvailable") (ge (int $budget.minAvailable) $fewest) -}}
{{- fail (printf "%s.budget.minAvailable (%d) must be less than the fewest replicas (%d), or no node can be drained" $component (int $budget.minAvailable) $fewest) -}}
{{- end -}}
{{- end -}}
{{- range $name := list "nvidia.com/gpu" -}}
{{- if or (hasKey ($it.resources.requests | default dict) $name) (hasKey ($it.resources.limits | default dict) $name) -}}
{{- fail (printf "%s.resources must not have %s: the chart adds it" $component $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if $v.quota.enabled -}}
{{- if not $v.quota.hard -}}
{{- fail "quota.hard must name at least one resource with quota.enabled" -}}
{{- end -}}
{{- $gpus := include "clipstack.gpusAtMost" . | int -}}
{{- $name := "requests.nvidia.com/gpu" -}}
{{- if and (hasKey $v.quota.hard $name) (gt $gpus (index $v.quota.hard $name | int)) -}}
{{- fail (printf "quota.hard.%s must be at least %d (GPUs of a pod × the most pods, and one pod more with spareGpu), got %v" $name $gpus (index $v.quota.hard $name)) -}}
{{- end -}}
{{- $pods := include "clipstack.podsAtMost" . | int -}}
{{- $hard := get $v.quota.hard "pods" | toString -}}
{{- if and (regexMatch "^[0-9]+$" $hard) (gt $pods (int $hard)) -}}
{{- fail (printf "quota.hard.pods must be at least %d (the most pods of embed and triton, and those that a rolling update adds), got %s" $pods $hard) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* GPUs that the release uses at most, a rolling update included. */}}
{{- define "clipstack.gpusAtMost" -}}
{{- $sum := 0 -}}
{{- range $component := list "embed" "triton" -}}
{{- $it := index $.Values $component -}}
{{- $onGpu := or (eq $component "triton") (and (eq (default "" $it.accelerator) "gpu") (eq $it.backend "onnxruntime")) -}}
{{- if and $it.enabled $onGpu -}}
{{- $pods := ternary $it.autoscaling.maxReplicas $it.replicas $it.autoscaling.enabled | int -}}
{{- if $it.spareGpu }}{{ $pods = add $pods 1 | int }}{{ end -}}
{{- $sum = add $sum (mul $pods (eq $component "embed" | ternary 1 (int $it.gpus))) -}}
{{- end -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* Pods that the release has at most, a rolling update included. */}}
{{- define "clipstack.podsAtMost" -}}
{{- $surge := (include "clipstack.contract" nil | fromJson).surge -}}
{{- $sum := 0 -}}
{{- range $component := list "embed" "triton" -}}
{{- $it := index $.Values $component -}}
{{- if $it.enabled -}}
{{- $onGpu := eq $component "triton" | ternary (gt (int $it.gpus) 0) (and (eq (default "" $it.accelerator) "gpu") (eq $it.backend "onnxruntime")) -}}
{{- $pods := ternary $it.autoscaling.maxReplicas $it.replicas $it.autoscaling.enabled | int -}}
{{- $sum = add $sum $pods (and $onGpu (not $it.spareGpu) | ternary 0 (int $surge)) -}}
{{- end -}}
{{- end -}}
{{- $sum -}}
{{- end -}}
