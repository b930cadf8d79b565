{{- define "operator.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "operator.account" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "operator.name" .) .Values.serviceAccount.name }}
{{- else }}{{ required "serviceAccount.name: which account is to be used?" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- define "operator.selector" -}}
app.kubernetes.io/name: kraftcluster-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Namespaces that are looked at, as a list in JSON. */}}
{{- define "operator.namespaces" -}}
{{- if .Values.watch.namespaces }}{{ .Values.watch.namespaces | uniq | sortAlpha | toJson }}
{{- else }}{{ list .Release.Namespace | toJson }}{{ end }}
{{- end }}

{{/* What the operator may do where it has clusters. No wildcard; the API server is asked for nothing else. */}}
{{- define "operator.rules" -}}
- apiGroups: [kraftcluster.io]
  resources: [kraftclusters, krafttopics, kraftusers, kafkatables, kafkametadataarchives, kafkascrubs]
  verbs: [get, list, watch]
{{- /* Annotations that ask for a replacement are removed once it is done. */}}
- apiGroups: [kraftcluster.io]
  resources: [kraftclusters]
  verbs: [patch]
- apiGroups: [kraftcluster.io]
  resources:
    - kraftclusters/status
    - krafttopics/status
    - kraftusers/status
    - kafkatables/status
    - kafkametadataarchives/status
    - kafkascrubs/status
  verbs: [get, patch]
- apiGroups: [""]
  resources: [configmaps, persistentvolumeclaims, pods, services]
  verbs: [get, list, watch, create, patch, delete]
{{- if .Values.rbac.secrets }}
- apiGroups: [""]
  resources: [secrets] # certificates of clusters with spec.security
  verbs: [get, list, create, patch, delete]
{{- end }}
{{- if .Values.rbac.certificates }}
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [get, list, create, patch, delete]
{{- end }}
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs, cronjobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies, ingresses]
  verbs: [get, list, watch, create, patch, delete]
{{- /* Listeners of type Route, on OpenShift. routes/custom-host is the right to name the host. */}}
- apiGroups: [route.openshift.io]
  resources: [routes, routes/custom-host]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: ["", events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* What the webhook is asked, by its path. An eviction of a node's pod becomes a planned restart. */}}
{{- define "operator.webhooks" -}}
{{- range list "kraftclusters" "krafttopics" }}
{{ . }}: {apiGroups: [kraftcluster.io], apiVersions: [v1alpha1], operations: [CREATE, UPDATE], resources: [{{ . }}]}
{{- end }}
evictions: {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods/eviction]}
{{- end }}
