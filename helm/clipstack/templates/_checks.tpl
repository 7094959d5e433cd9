{{/* What the schema of the values cannot say: one line for the first combination that cannot work. */}}
{{- define "clipstack.checks" -}}
{{- end -}}
