{{/*
Checks of combinations that the schema cannot express. Fails with one line for the first invalid combination.
*/}}
{{- define "clipstack.checks" -}}
{{- $contract := include "clipstack.contract" $ | fromJson -}}
{{- $v := .Values -}}
{{- if not (or $v.embed.enabled $v.triton.enabled $v.bulk.enabled) -}}
{{- fail "embed.enabled, triton.enabled or bulk.enabled must be true: nothing would be deployed" -}}
{{- end -}}

{{- $full := include "clipstack.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $full) -}}
{{- fail (printf "fullnameOverride, or the release name with nameOverride, must be a valid Service name (a-z, 0-9 and -, starting with a letter and not ending with -), got %s" $full) -}}
{{- end -}}

{{- /* weights */ -}}
{{- $towers := (include "clipstack.towers" . | fromJson).towers -}}
{{- $files := list -}}
{{- range $towers }}{{ $files = append $files .file }}{{ end -}}
{{- include "clipstack.weightsChecks" (list . $towers $files) -}}
{{- if and (eq $v.model.weights "pvc") (not $v.model.pvc.claimName) -}}
{{- fail "model.pvc.claimName is required with model.weights pvc" -}}
{{- end -}}
{{- if and (eq $v.model.weights "image") (not (include "clipstack.runsTriton" .)) -}}
{{- range $tower := $towers -}}
{{- if $tower.sha256 }}{{ fail (printf "%s must be empty with model.weights image and without Triton: the embed server computes its fingerprint from the file that it serves" (include "clipstack.weightsValue" (list $towers $tower "sha256" "sha256"))) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.model.weights "init") (eq (include "clipstack.bytes" $v.model.init.sizeLimit) "0") -}}
{{- fail (printf "model.init.sizeLimit must be at least 1 byte with model.weights init, got %v" $v.model.init.sizeLimit) -}}
{{- end -}}

{{- if $v.embed.enabled -}}
{{- $auth := $v.embed.auth -}}
{{- $service := $v.embed.service -}}
{{- if and (ne $service.type "ClusterIP") (not $auth.existingSecret) (not $auth.allowAnonymous) -}}
{{- fail (printf "embed.auth.existingSecret is required with embed.service.type %s (or set embed.auth.allowAnonymous if the network restricts access)" $service.type) -}}
{{- end -}}
{{- if and (ne $service.type "ClusterIP") (not $v.embed.tls.secretName) (not $v.embed.allowPlaintext) -}}
{{- fail (printf "embed.tls.secretName is required with embed.service.type %s (or set embed.allowPlaintext if the network is private or a load balancer has the certificate)" $service.type) -}}
{{- end -}}
{{- if and $auth.existingSecret $auth.allowAnonymous -}}
{{- fail "embed.auth must have existingSecret or allowAnonymous, not both" -}}
{{- end -}}
{{- if $v.ingress.enabled -}}
{{- if not $v.ingress.host -}}
{{- fail "ingress.host is required with ingress.enabled" -}}
{{- end -}}
{{- if not (or $auth.existingSecret $auth.allowAnonymous) -}}
{{- fail "embed.auth.existingSecret is required with ingress.enabled (or set embed.auth.allowAnonymous if the network restricts access)" -}}
{{- end -}}
{{- if not (or $v.ingress.tlsSecretName $v.ingress.allowPlaintext) -}}
{{- fail "ingress.tlsSecretName is required with ingress.enabled (or set ingress.allowPlaintext if a load balancer has the certificate)" -}}
{{- end -}}
{{- end -}}
{{- if and $v.httpRoute.enabled (not (or $auth.existingSecret $auth.allowAnonymous)) -}}
{{- fail "embed.auth.existingSecret is required with httpRoute.enabled (or set embed.auth.allowAnonymous if the network restricts access)" -}}
{{- end -}}
{{- if and $auth.keysSecret (not $auth.existingSecret) -}}
{{- fail "embed.auth.existingSecret is required with embed.auth.keysSecret: it has the key of the client that reads metrics and runs helm test" -}}
{{- end -}}
{{- if and (eq $service.type "ClusterIP") $service.nodePort -}}
{{- fail "embed.service.nodePort requires embed.service.type NodePort or LoadBalancer, got ClusterIP" -}}
{{- end -}}
{{- $precision := $v.embed.server.modelPrecision | default "fp32" -}}
{{- if and (eq $v.model.weights "init") (ne $precision "fp32") (eq $v.embed.backend "onnxruntime") -}}
{{- fail (printf "embed.server.modelPrecision must be fp32 with model.weights init: with pvc or image, the file of the precision is beside model.onnx, got %s" $precision) -}}
{{- end -}}
{{- if eq $v.embed.backend "triton" -}}
{{- if not $v.triton.enabled -}}
{{- fail "triton.enabled must be true with embed.backend triton: the gateway calls the Triton servers of this release" -}}
{{- end -}}
{{- if eq $v.embed.accelerator "gpu" -}}
{{- fail "embed.accelerator must be cpu with embed.backend triton: a gateway uses no GPU, got gpu" -}}
{{- end -}}
{{- end -}}
{{- if and $v.embed.resourceClaimTemplate (or (eq $v.embed.backend "triton") (ne $v.embed.accelerator "gpu")) -}}
{{- fail "embed.resourceClaimTemplate requires embed.backend onnxruntime and embed.accelerator gpu" -}}
{{- end -}}
{{- range $it := $v.embed.extraEnv -}}
{{- if or (has $it.name $contract.ownEnv) (and $v.tracing.endpoint (hasPrefix "OTEL_" $it.name)) -}}
{{- fail (printf "embed.extraEnv must not set %s: the chart does" $it.name) -}}
{{- end -}}
{{- range $name, $_ := $v.embed.server -}}
{{- if eq $it.name ($name | snakecase | upper) -}}
{{- fail (printf "embed.extraEnv must not set %s: embed.server.%s does" $it.name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if $v.bulk.enabled -}}
{{- $bulk := $v.bulk -}}
{{- if not $bulk.job }}{{ fail "bulk.job is required with bulk.enabled" }}{{ end -}}
{{- if and $bulk.timeZone (not $bulk.schedule) }}{{ fail "bulk.timeZone requires bulk.schedule" }}{{ end -}}
{{- if and (include "clipstack.bulkTriton" .) (not (first $towers).sha256) (not (get $v.triton.modelConfig.texts (first $towers).triton)) -}}
{{- fail (printf "%s is required with bulk.accelerator gpu: rows name the fingerprint of the model" (include "clipstack.weightsValue" (list $towers (first $towers) "sha256" "sha256"))) -}}
{{- end -}}
{{- include "clipstack.podChecks" (list "bulk" $bulk) -}}
{{- end -}}

{{- if include "clipstack.runsTriton" . -}}
{{- $triton := $v.triton -}}
{{- if and (eq $triton.server "emulator") (gt (int $triton.gpus) 0) -}}
{{- fail (printf "triton.gpus must be 0 with triton.server emulator, which runs on the CPU, got %v" $triton.gpus) -}}
{{- end -}}
{{- if and (eq $v.model.weights "image") (eq $triton.server "tritonserver") (eq $triton.image.repository $contract.tritonRepository) -}}
{{- fail (printf "model.weights must be pvc or init with the image %s, which contains no weights (docs/images.md builds one that does), got image" $contract.tritonRepository) -}}
{{- end -}}
{{- if and (eq $triton.backend "tensorrt") (ne $triton.modelKind "fp32") -}}
{{- fail (printf "triton.modelKind must be fp32 with triton.backend tensorrt, got %s" $triton.modelKind) -}}
{{- end -}}
{{- if and (ne $triton.modelKind "fp32") $v.embed.enabled (eq $v.embed.backend "onnxruntime") (ne $v.model.weights "image") -}}
{{- fail (printf "triton.modelKind must be fp32 with embed.backend onnxruntime and model.weights %s: both servers execute the same files, got %s" $v.model.weights $triton.modelKind) -}}
{{- end -}}
{{- include "clipstack.modelConfigChecks" (list . $towers) -}}
{{- $names := list -}}
{{- range include "clipstack.ownTritonArgs" . | fromYamlArray }}{{ $names = append $names (splitList "=" . | first) }}{{ end -}}
{{- range $index, $arg := $triton.extraArgs -}}
{{- $name := splitList "=" $arg | first -}}
{{- if or (has $name $names) (regexMatch "^--(http|grpc|metrics)-port$" $name) -}}
{{- fail (printf "triton.extraArgs.%d must not set %s: the chart does" $index $name) -}}
{{- end -}}
{{- end -}}
{{- if and $triton.resourceClaimTemplate (eq (int $triton.gpus) 0) -}}
{{- fail "triton.resourceClaimTemplate requires triton.gpus of at least 1, got 0" -}}
{{- end -}}
{{- if and (ne $triton.service.type "ClusterIP") (not $triton.allowUnauthenticated) -}}
{{- fail (printf "triton.allowUnauthenticated must be true with triton.service.type %s: Triton has no authentication" $triton.service.type) -}}
{{- end -}}
{{- if and (ne $triton.service.type "ClusterIP") (not $triton.allowPlaintext) -}}
{{- fail (printf "triton.allowPlaintext must be true with triton.service.type %s: Triton has no TLS" $triton.service.type) -}}
{{- end -}}
{{- if and (ne $triton.service.type "ClusterIP") (eq $v.model.weights "image") -}}
{{- fail (printf "triton.service.type must be ClusterIP with model.weights image: clients could load and unload models, got %s" $triton.service.type) -}}
{{- end -}}
{{- $compiles := include "clipstack.compiles" . -}}
{{- if $compiles -}}
{{- range $tower := $towers -}}
{{- $text := include "clipstack.modelConfig" (list $ $tower) -}}
{{- $onGraph := contains $contract.tensorrtFile $text -}}
{{- $release := regexFind "^[0-9]{2}[.][0-9]{2}-" (toString $triton.image.tag) -}}
{{- if and $onGraph $release (lt (replace "." "" $release) (replace "." "" $contract.stronglyTyped)) -}}
{{- fail (printf "triton.image.tag must be %s or newer with triton.backend tensorrt: the configuration of %s is for TensorRT 11 (triton.modelConfig.texts replaces it), got %s" $contract.stronglyTyped $tower.triton $triton.image.tag) -}}
{{- end -}}
{{- if and $release (not $triton.image.digest) (contains "precision_mode" $text) (ge (replace "." "" $release) (replace "." "" $contract.stronglyTyped)) -}}
{{- fail (printf "triton.modelConfig.texts.%s must not set precision_mode with triton.image.tag %s: from Triton %s on, TensorRT takes the precision from the graph" $tower.triton $triton.image.tag $contract.stronglyTyped) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $triton.engineCache.enabled (not $compiles) -}}
{{- fail "triton.engineCache.enabled requires triton.backend tensorrt and GPUs" -}}
{{- end -}}
{{- if and $triton.engineCache.enabled (ne $v.model.weights "image") -}}
{{- range $tower := $towers -}}
{{- if not $tower.sha256 -}}
{{- fail (printf "%s is required with triton.engineCache, so that engines of different weights are not reused" (include "clipstack.weightsValue" (list $towers $tower "sha256" "sha256"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $triton.engineCache.enabled (eq $v.model.weights "image") (not $triton.image.digest) -}}
{{- fail "triton.image.digest is required with triton.engineCache and model.weights image: a tag can change its weights, and engines of the previous weights would be reused" -}}
{{- end -}}
{{- $scaling := $triton.autoscaling -}}
{{- $byKeda := and $scaling.enabled (eq $scaling.metric "queue-time") (eq $scaling.source "keda") -}}
{{- range $key := list "targetGpuPercent" "schedules" -}}
{{- if and (get $scaling $key) (not $byKeda) -}}
{{- fail (printf "triton.autoscaling.%s requires triton.autoscaling with metric queue-time and source keda" $key) -}}
{{- end -}}
{{- end -}}
{{- if and $scaling.targetGpuPercent (eq (int $triton.gpus) 0) -}}
{{- fail "triton.autoscaling.targetGpuPercent requires triton.gpus of at least 1, got 0" -}}
{{- end -}}
{{- range $index, $schedule := $scaling.schedules -}}
{{- if gt (int $schedule.replicas) (int $scaling.maxReplicas) -}}
{{- fail (printf "triton.autoscaling.schedules.%d.replicas must be at most maxReplicas (%d), got %d" $index (int $scaling.maxReplicas) (int $schedule.replicas)) -}}
{{- end -}}
{{- end -}}
{{- if and $scaling.scaleToZero.enabled (not (and $byKeda $v.embed.enabled (eq $v.embed.backend "triton"))) -}}
{{- fail "triton.autoscaling.scaleToZero requires source keda and a gateway (embed.backend triton), whose requests add the first pod" -}}
{{- end -}}
{{- if and $scaling.enabled (eq $scaling.metric "queue-time") (eq $scaling.source "keda") (not $scaling.prometheus.url) -}}
{{- fail "triton.autoscaling.prometheus.url is required with triton.autoscaling.source keda" -}}
{{- end -}}
{{- end -}}

{{- if and $v.triton.enabled $v.grpcRoute.enabled (not $v.triton.allowUnauthenticated) -}}
{{- fail "triton.allowUnauthenticated must be true with grpcRoute.enabled: Triton has no authentication" -}}
{{- end -}}
{{- if and $v.triton.enabled $v.grpcRoute.enabled (eq $v.model.weights "image") -}}
{{- fail "grpcRoute.enabled must be false with model.weights image: clients could load and unload models" -}}
{{- end -}}
{{- range $name := list "httpRoute" "grpcRoute" -}}
{{- $route := index $v $name -}}
{{- if $route.enabled -}}
{{- if not $route.parentRefs }}{{ fail (printf "%s.parentRefs must have at least one Gateway with %s.enabled" $name $name) }}{{ end -}}
{{- range $index, $parent := $route.parentRefs -}}
{{- if not (or $parent.sectionName $route.allowPlaintext) -}}
{{- fail (printf "%s.parentRefs.%d.sectionName is required: the listener with TLS (or set %s.allowPlaintext if all listeners of the Gateway may have the route)" $name $index $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if $v.limitRange.enabled -}}
{{- include "clipstack.atMost" (list "limitRange.defaultRequest" $v.limitRange.defaultRequest "limitRange.default" $v.limitRange.default) -}}
{{- include "clipstack.atMost" (list "limitRange.default" $v.limitRange.default "limitRange.max" $v.limitRange.max) -}}
{{- end -}}
{{- range $component := list "embed" "triton" -}}
{{- $it := index $v $component -}}
{{- if $it.enabled -}}
{{- include "clipstack.podChecks" (list $component $it) -}}
{{- $scaling := $it.autoscaling -}}
{{- $min := $it.replicas | int -}}
{{- $max := $min -}}
{{- if $scaling.enabled -}}
{{- $min = $scaling.minReplicas | int -}}
{{- $max = $scaling.maxReplicas | int -}}
{{- if gt $min $max -}}
{{- fail (printf "%s.autoscaling.minReplicas (%d) must not exceed maxReplicas (%d)" $component $min $max) -}}
{{- end -}}
{{- if and (eq (default "cpu" $scaling.metric) "cpu") (not (get ($it.resources.requests | default dict) "cpu")) -}}
{{- fail (printf "%s.resources.requests.cpu is required for autoscaling on CPU: cpuPercent is relative to it" $component) -}}
{{- end -}}
{{- end -}}
{{- $budget := $it.budget -}}
{{- if $budget.enabled -}}
{{- if and (hasKey $budget "minAvailable") (hasKey $budget "maxUnavailable") -}}
{{- fail (printf "%s.budget must set either maxUnavailable or minAvailable, got both" $component) -}}
{{- end -}}
{{- if and (hasKey $budget "minAvailable") (ge (int $budget.minAvailable) $min) -}}
{{- fail (printf "%s.budget.minAvailable (%d) must be less than the minimum replicas (%d), otherwise no node can be drained" $component (int $budget.minAvailable) $min) -}}
{{- end -}}
{{- end -}}
{{- range $name := list $v.gpuResourceName -}}
{{- if or (hasKey ($it.resources.requests | default dict) $name) (hasKey ($it.resources.limits | default dict) $name) -}}
{{- fail (printf "%s.resources must not have %s: the chart adds it" $component $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if $v.quota.enabled -}}
{{- if not $v.quota.hard -}}
{{- fail "quota.hard must list at least one resource with quota.enabled" -}}
{{- end -}}
{{- $gpus := include "clipstack.maxGpus" . | int -}}
{{- $name := printf "requests.%s" $v.gpuResourceName -}}
{{- if and (hasKey $v.quota.hard $name) (gt $gpus (index $v.quota.hard $name | int)) -}}
{{- fail (printf "quota.hard.%s must be at least %d (GPUs per pod × maximum pods, plus one pod with spareGpu), got %v" $name $gpus (index $v.quota.hard $name)) -}}
{{- end -}}
{{- $pods := include "clipstack.maxPods" . | int -}}
{{- $hard := get $v.quota.hard "pods" | toString -}}
{{- if and (regexMatch "^[0-9]+$" $hard) (gt $pods (int $hard)) -}}
{{- fail (printf "quota.hard.pods must be at least %d (maximum pods of embed, triton and bulk, plus those added by a rolling update), got %s" $pods $hard) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Checks of values that Kubernetes would reject in a pod. Arguments: component, its values. */}}
{{- define "clipstack.podChecks" -}}
{{- $component := index . 0 -}}
{{- $it := index . 1 -}}
{{- range $index, $env := $it.extraEnv -}}
{{- if and (hasKey $env "value") (hasKey $env "valueFrom") -}}
{{- fail (printf "%s.extraEnv.%d must have value or valueFrom, not both" $component $index) -}}
{{- end -}}
{{- end -}}
{{- $volumes := list -}}
{{- range $index, $volume := $it.extraVolumes -}}
{{- $name := toString $volume.name -}}
{{- if or (has $name (concat $volumes (list "tmp" "shared-memory" "repository" "engines" "tls" "keys"))) (hasPrefix "model-config" $name) (hasPrefix "weights" $name) (not $volume.name) -}}
{{- fail (printf "%s.extraVolumes.%d.name must be a name of its own, got %s" $component $index $name) -}}
{{- end -}}
{{- $volumes = append $volumes $name -}}
{{- end -}}
{{- range $index, $mount := $it.extraVolumeMounts -}}
{{- if not (has $mount.name $volumes) -}}
{{- fail (printf "%s.extraVolumeMounts.%d.name must be the name of one of %s.extraVolumes, got %s" $component $index $component $mount.name) -}}
{{- end -}}
{{- end -}}
{{- range $index, $container := $it.extraContainers -}}
{{- if or (not $container.name) (not $container.image) (eq (toString $container.name) $component) -}}
{{- fail (printf "%s.extraContainers.%d must have an image and a name other than %s" $component $index $component) -}}
{{- end -}}
{{- end -}}
{{- $service := $it.service | default (dict "type" "LoadBalancer" "externalTrafficPolicy" "Cluster") -}}
{{- if and (ne $service.type "LoadBalancer") (or $service.loadBalancerClass $service.loadBalancerSourceRanges) -}}
{{- fail (printf "%s.service.type must be LoadBalancer with loadBalancerClass or loadBalancerSourceRanges, got %s" $component $service.type) -}}
{{- end -}}
{{- if and (eq $service.type "ClusterIP") (ne $service.externalTrafficPolicy "Cluster") -}}
{{- fail (printf "%s.service.type must be NodePort or LoadBalancer with externalTrafficPolicy %s, got ClusterIP" $component $service.externalTrafficPolicy) -}}
{{- end -}}
{{- range $index, $toleration := $it.tolerations -}}
{{- $name := printf "%s.tolerations.%d" $component $index -}}
{{- if and (eq (default "Equal" $toleration.operator) "Exists") $toleration.value }}{{ fail (printf "%s.value must be absent with the operator Exists, got %s" $name $toleration.value) }}{{ end -}}
{{- if and (not $toleration.key) (ne (default "Equal" $toleration.operator) "Exists") }}{{ fail (printf "%s.operator must be Exists without a key" $name) }}{{ end -}}
{{- if and (hasKey $toleration "tolerationSeconds") (ne (default "" $toleration.effect) "NoExecute") }}{{ fail (printf "%s.effect must be NoExecute with tolerationSeconds" $name) }}{{ end -}}
{{- end -}}
{{- include "clipstack.atMost" (list (printf "%s.resources.requests" $component) $it.resources.requests (printf "%s.resources.limits" $component) $it.resources.limits) -}}
{{- end -}}

{{/* Fails if a quantity exceeds another one. Arguments: name, quantities, name and quantities of the maximum. */}}
{{- define "clipstack.atMost" -}}
{{- range $key, $value := index . 1 -}}
{{- $max := get (index $ 3 | default dict) $key -}}
{{- if and $max (gt (include "clipstack.amount" $value | float64) (include "clipstack.amount" $max | float64)) -}}
{{- fail (printf "%s.%s must be at most %s.%s (%v), got %v" (index $ 0) $key (index $ 2) $key $max $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Checks of the weights of each tower. Arguments: root, towers, their files. */}}
{{- define "clipstack.weightsChecks" -}}
{{- $model := (index . 0).Values.model -}}
{{- $towers := index . 1 -}}
{{- $files := index . 2 -}}
{{- range $file, $_ := $model.towers -}}
{{- if not (has $file $files) -}}
{{- fail (printf "model.towers must have only towers of the models (%s), got %s" ($files | join ", ") $file) -}}
{{- end -}}
{{- end -}}
{{- $ofOne := dict "sha256" $model.sha256 "pvc.subPath" $model.pvc.subPath "init.url" $model.init.url -}}
{{- if gt (len $towers) 1 -}}
{{- range $name, $value := $ofOne -}}
{{- if $value -}}
{{- fail (printf "model.%s is the value of a single tower: with several, set model.towers.<tower>.%s for %s" $name (splitList "." $name | last) ($files | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $model.weights "init" -}}
{{- $secret := $model.init.existingSecret -}}
{{- $urlPattern := "^https?://(\\[[0-9A-Fa-f:.]+\\]|[^\\s/\\\\@?#:]+)(:[0-9]+)?(/[^\\s?]*)?$" -}}
{{- $urlRule := "must be http://… or https://… without user, password or query; put a URL with a secret into the Secret model.init.existingSecret" -}}
{{- range $tower := $towers -}}
{{- $url := include "clipstack.weightsValue" (list $towers $tower "init.url" "url") -}}
{{- if not (or $tower.url $secret) }}{{ fail (printf "%s or model.init.existingSecret is required with model.weights init" $url) }}{{ end -}}
{{- if and $tower.url $secret -}}
{{- fail (eq (len $towers) 1 | ternary "model.init must have url or existingSecret, not both" (printf "%s must be empty with model.init.existingSecret" $url)) -}}
{{- end -}}
{{- /* the URL may contain a secret, so the message omits it */ -}}
{{- if and $tower.url (not (regexMatch $urlPattern $tower.url)) }}{{ fail (printf "%s %s" $url $urlRule) }}{{ end -}}
{{- if not $tower.sha256 -}}
{{- fail (printf "%s is required with model.weights init, to verify the download" (include "clipstack.weightsValue" (list $towers $tower "sha256" "sha256"))) -}}
{{- end -}}
{{- if and $tower.tokenizer (not (and $tower.tokenizerSha256 (or $tower.tokenizerUrl $secret))) -}}
{{- fail (printf "model.towers.%s.tokenizer must have the url and sha256 of %s with model.weights init" $tower.file $tower.tokenizer) -}}
{{- end -}}
{{- if and $tower.tokenizerUrl (not (regexMatch $urlPattern $tower.tokenizerUrl)) -}}
{{- fail (printf "model.towers.%s.tokenizer.url %s" $tower.file $urlRule) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Name of a value for a tower. Arguments: towers, tower, name for a single tower, name for one of several. */}}
{{- define "clipstack.weightsValue" -}}
{{- if eq (len (index . 0)) 1 }}model.{{ index . 2 }}{{ else }}model.towers.{{ (index . 1).file }}.{{ index . 3 }}{{ end -}}
{{- end -}}

{{/* Checks of the model configurations. Arguments: root, towers. */}}
{{- define "clipstack.modelConfigChecks" -}}
{{- $root := index . 0 -}}
{{- $triton := $root.Values.triton -}}
{{- $config := $triton.modelConfig -}}
{{- $served := list -}}
{{- range $tower := index . 1 }}{{ $served = append $served $tower.triton }}{{ end -}}
{{- range $name, $text := $config.texts -}}
{{- if not (has $name $served) -}}
{{- fail (printf "triton.modelConfig.texts must have only the models that Triton serves (%s), got %s" ($served | join ", ") $name) -}}
{{- end -}}
{{- if not (regexMatch (printf `(?m)^\s*name\s*:\s*"%s"` $name) $text) -}}
{{- fail (printf "triton.modelConfig.texts.%s must be the configuration of %s (name: \"%s\")" $name $name $name) -}}
{{- end -}}
{{- end -}}
{{- range $name := $served -}}
{{- if not (or (get $config.texts $name) ($root.Files.Get (printf "model-configs/%s.pbtxt" $name))) -}}
{{- fail (printf "triton.modelConfig.texts.%s is required: the chart has configurations for the catalogue only ('clipstack model repository' writes them)" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Maximum number of GPUs of the release, including a rolling update. */}}
{{- define "clipstack.maxGpus" -}}
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
{{- if include "clipstack.bulkTriton" . }}{{ $sum = add $sum (mul .Values.bulk.workers .Values.triton.gpus) }}{{ end -}}
{{- $sum -}}
{{- end -}}

{{/* Maximum number of pods of the release, including a rolling update. */}}
{{- define "clipstack.maxPods" -}}
{{- $surge := (include "clipstack.contract" $ | fromJson).surge -}}
{{- $sum := 0 -}}
{{- range $component := list "embed" "triton" -}}
{{- $it := index $.Values $component -}}
{{- if $it.enabled -}}
{{- $onGpu := eq $component "triton" | ternary (gt (int $it.gpus) 0) (and (eq (default "" $it.accelerator) "gpu") (eq $it.backend "onnxruntime")) -}}
{{- $pods := ternary $it.autoscaling.maxReplicas $it.replicas $it.autoscaling.enabled | int -}}
{{- $sum = add $sum $pods (and $onGpu (not $it.spareGpu) | ternary 0 (int $surge)) -}}
{{- end -}}
{{- end -}}
{{- if .Values.bulk.enabled }}{{ $sum = add $sum .Values.bulk.workers }}{{ end -}}
{{- $sum -}}
{{- end -}}
