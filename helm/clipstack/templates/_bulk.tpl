{{/* Specification of the Job. */}}
{{- define "clipstack.bulkJob" -}}
{{- $contract := include "clipstack.contract" $ | fromJson -}}
{{- $bulk := .Values.bulk -}}
{{- $triton := include "clipstack.bulkTriton" . -}}
{{- $image := .Values.embed.image -}}
{{- $reader := empty $triton | ternary "bulk" "triton" -}}
completionMode: Indexed
completions: {{ $bulk.workers }}
parallelism: {{ $bulk.workers }}
backoffLimitPerIndex: {{ $bulk.retries }}
activeDeadlineSeconds: {{ mul $bulk.maxHours 3600 }}
ttlSecondsAfterFinished: {{ $bulk.keepSeconds }}
podFailurePolicy:
  rules:
    # preempted, evicted or drained
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
    # wrong settings, or another model: a new pod fails as well
    - action: FailJob
      onExitCodes:
        containerName: bulk
        operator: In
        values: [2]
template:
  metadata:
    labels:
      {{- include "clipstack.podLabels" (list . "bulk") | nindent 6 }}
    annotations:
      {{- $checksum := empty $triton | ternary dict (dict "checksum/model-config" (include "clipstack.modelConfigs" . | sha256sum)) }}
      {{- toYaml (merge $checksum (deepCopy $bulk.podAnnotations)) | nindent 6 }}
  spec:
    restartPolicy: Never
    serviceAccountName: {{ include "clipstack.serviceAccount" (list . "bulk") | quote }}
    automountServiceAccountToken: false
    enableServiceLinks: false
    terminationGracePeriodSeconds: 60
    securityContext:
      {{- include "clipstack.podSecurity" . | nindent 6 }}
      {{- if .Values.fixedUser }}
      fsGroup: {{ $contract.user.gid }}
      fsGroupChangePolicy: OnRootMismatch
      {{- end }}
    {{- with include "clipstack.scheduling" (list . "bulk" (empty $triton | ternary 0 .Values.triton.gpus)) | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with include "clipstack.weightsInit" (list . $reader) | default (empty $triton | ternary "" "initContainers:") }}
    {{- . | nindent 4 }}
    {{- end }}
      {{- if $triton }}
      # a sidecar: stops when the worker has ended
      {{- include "clipstack.tritonContainer" . | nindent 6 }}
        restartPolicy: Always
      {{- end }}
    containers:
      - name: bulk
        image: {{ include "clipstack.image" $image | quote }}
        imagePullPolicy: {{ $image.pullPolicy | quote }}
        args: [bulk]
        env:
          - name: BULK_JOB
            value: {{ $bulk.job | quote }}
          - name: BULK_WORKERS
            value: {{ $bulk.workers | quote }}
          - name: BULK_MEMORY_MIB
            value: {{ $bulk.memoryMiB | quote }}
          {{- with $bulk.source }}
          - name: BULK_SOURCE
            value: {{ . | quote }}
          - name: BULK_RUN
            valueFrom:
              fieldRef:
                fieldPath: metadata.labels['batch.kubernetes.io/controller-uid']
          - name: BULK_VECTORS
            value: {{ $bulk.vectors | quote }}
          - name: MODELS
            value: {{ toJson $.Values.models | quote }}
          {{- with $bulk.usdPerWorkerHour }}
          - name: BULK_USD_PER_HOUR
            value: {{ . | quote }}
          {{- end }}
          {{- end }}
          {{- if $triton }}
          - name: BACKEND
            value: triton
          - name: TRITON_GRPC_URLS
            value: 127.0.0.1:{{ $contract.ports.tritonGrpc }}
          - name: TRITON_MODEL_KIND
            value: {{ include "clipstack.servedKind" . | quote }}
          {{- else }}
          - name: INTRA_OP_THREADS
            value: {{ $bulk.cores | quote }}
          {{- end }}
          {{- with $bulk.extraEnv }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        {{- with $bulk.credentialsSecret }}
        envFrom:
          - secretRef:
              name: {{ . | quote }}
        {{- end }}
        resources:
          {{- include "clipstack.resources" (list $ $bulk 0) | nindent 10 }}
        securityContext:
          {{- include "clipstack.containerSecurity" . | nindent 10 }}
        volumeMounts:
          - name: tmp
            mountPath: /tmp
          {{- with $bulk.extraVolumeMounts }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
          {{- if not $triton }}
          {{- with include "clipstack.weightsMount" (list . "bulk") }}
          {{- . | nindent 10 }}
          {{- end }}
          {{- end }}
    volumes:
      {{- with $bulk.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- if $triton }}
      {{- include "clipstack.tritonVolumes" . | nindent 6 }}
      {{- else }}
      - name: tmp
        emptyDir:
          medium: Memory
          sizeLimit: {{ $contract.tmpMiB }}Mi
      {{- with include "clipstack.weightsVolume" (list . "bulk") }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- end }}
{{- end -}}
