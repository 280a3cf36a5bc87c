{{- define "tollbook.name" -}}
{{- printf "%s" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "tollbook.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tollbook.labels" -}}
{{ include "tollbook.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "tollbook.config" -}}
{{- if not (or .Values.config .Values.secretName) -}}
{{- fail "set secretName to a Secret with OPENAI_API_KEY, TOLLBOOK_ADMIN_KEY and APP_KEY_HASH, or config to a configuration of your own" -}}
{{- end -}}
{{- if .Values.config -}}
{{ .Values.config }}
{{- else -}}
{{ .Files.Get "files/tollbook.yaml" }}
{{- end -}}
{{- end -}}
