{{- define "cluster.name" -}}
{{ default .Release.Name .Values.name }}
{{- end }}

{{- define "cluster.labels" -}}
app.kubernetes.io/name: kraftcluster
app.kubernetes.io/instance: {{ include "cluster.name" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A map of things by name as the list of things with names that the resource has; nulls take one away. */}}
{{- define "cluster.named" -}}
{{- $list := list }}
{{- range $name, $one := . }}
{{- if not (kindIs "invalid" $one) }}
{{- $list = append $list (merge (dict "name" $name) $one) }}
{{- end }}
{{- end }}
{{- toYaml $list }}
{{- end }}
