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

{{- /* A book in one process is that process's alone: replicas that do not share one would each admit what a limit lets through
once. What a variable holds is not seen here; gateways whose journals differ do not start on one book. */ -}}
{{- define "tollbook.fleet" -}}
{{- $replicas := int .Values.replicas -}}
{{- if lt $replicas 1 -}}
{{- fail "replicas must be 1 or more" -}}
{{- end -}}
{{- if gt $replicas 1 -}}
{{- $config := include "tollbook.config" . | fromYaml -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "replicas: config cannot be read: %v" (get $config "Error")) -}}
{{- end -}}
{{- $engine := get $config "engine" | default dict -}}
{{- $book := get $engine "redis" | default dict -}}
{{- $journal := get $config "journal" | default "" | toString -}}
{{- if not (get $book "url") -}}
{{- fail (printf "replicas: %d needs a shared book: set engine.redis.url in config, or each replica would count for itself" $replicas) -}}
{{- end -}}
{{- if not (regexMatch "^(mysql://|mariadb://|[$][{])" $journal) -}}
{{- fail (printf "replicas: %d needs one journal for all: set journal to mysql://… in config, not a file of each replica" $replicas) -}}
{{- end -}}
{{- if lt (int (get $book "fleet_size" | default $replicas)) $replicas -}}
{{- fail (printf "replicas: %d is more than engine.redis.fleet_size in config: each would take a larger part of a limit than there is while the book is away" $replicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}
