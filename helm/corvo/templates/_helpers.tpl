{{/* Names, labels, and parts that several objects have. */}}

{{- define "corvo.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Short, because the longest name of a pod with a suffix must be a DNS label. */}}
{{- define "corvo.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "corvo.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "corvo.headless" -}}
{{- printf "%s-headless" (include "corvo.fullname" .) -}}
{{- end -}}

{{- define "corvo.secretName" -}}
{{- printf "%s-keys" (include "corvo.fullname" .) -}}
{{- end -}}

{{- define "corvo.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "corvo.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* What selects objects: it never has a version, because selectors cannot change.
     Takes a dict of `root` and `component`. */}}
{{- define "corvo.selector" -}}
app.kubernetes.io/name: {{ include "corvo.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "corvo.labels" -}}
{{ include "corvo.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: corvo
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The metadata of an object: a dict of `root`, `component`, and perhaps `name`, `labels`,
     `annotations`. */}}
{{- define "corvo.metadata" -}}
name: {{ default (include "corvo.fullname" .root) .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- merge (include "corvo.labels" . | fromYaml) (default dict .labels) | toYaml | nindent 2 }}
{{- with merge (deepCopy (default dict .annotations)) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* An image: a dict of `root` and `image`. */}}
{{- define "corvo.image" -}}
{{- $registry := default .root.Values.global.imageRegistry .image.registry -}}
{{- $tag := default .root.Chart.AppVersion .image.tag -}}
{{- if and (eq $tag "latest") (not .image.digest) -}}
{{- fail "image.tag is latest: name a version, so that all nodes run the same one" -}}
{{- end -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ $tag }}{{ end -}}
{{- end -}}

{{- define "corvo.pullSecrets" -}}
{{- with concat (default list .Values.global.imagePullSecrets) (default list .Values.image.pullSecrets) | uniq }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "corvo.scheme" -}}
{{- ternary "https" "http" .Values.tls.enabled -}}
{{- end -}}

{{- define "corvo.url" -}}
{{- printf "%s://%s.%s.svc:%v" (include "corvo.scheme" .) (include "corvo.fullname" .) .Release.Namespace (int .Values.service.port) -}}
{{- end -}}

{{/* The label of pods that may use the HTTP API where the network policy is closed. */}}
{{- define "corvo.clientLabel" -}}
{{- printf "%s-client" (include "corvo.fullname" .) -}}
{{- end -}}

{{- define "corvo.tlsSecret" -}}
{{- default (printf "%s-tls" (include "corvo.fullname" .)) .Values.tls.existingSecret -}}
{{- end -}}

{{- define "corvo.peerTlsSecret" -}}
{{- default (printf "%s-peer-tls" (include "corvo.fullname" .)) .Values.cluster.tls.existingSecret -}}
{{- end -}}

{{/* The address of a pod for other nodes: a dict of `root` and `pod`. */}}
{{- define "corvo.peerAddress" -}}
{{- printf "%s.%s.%s.svc.%s:%d" .pod (include "corvo.headless" .root) .root.Release.Namespace .root.Values.cluster.domain (int .root.Values.cluster.port) -}}
{{- end -}}

{{/* The variable with the admin key. */}}
{{- define "corvo.adminKeySource" -}}
valueFrom:
  secretKeyRef:
    name: {{ default (include "corvo.secretName" .) .Values.auth.existingSecret }}
    key: {{ empty .Values.auth.existingSecret | ternary "admin-key" .Values.auth.adminKeyKey }}
{{- end -}}

{{/* A value of `corvo.toml`. Helm reads numbers as floats, and `on` as true; Corvo has neither. */}}
{{- define "corvo.tomlValue" -}}
{{- if kindIs "bool" . -}}
{{- ternary "on" "off" . | quote -}}
{{- else if or (kindIs "float64" .) (kindIs "int64" .) (kindIs "int" .) -}}
{{- int64 . -}}
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}

{{/* The groups of `files/alerts.yaml`, with the values of the chart in the place of ${NAME}. */}}
{{- define "corvo.alertGroups" -}}
{{- $rule := .Values.metrics.prometheusRule -}}
{{- $text := .Files.Get "files/alerts.yaml" | replace "${scrapeJobs}" $rule.scrapeJobs | replace "${runbooks}" $rule.runbooks -}}
{{- range $alert, $limits := $rule.limits -}}
{{- range $name, $value := $limits -}}
{{- $text = replace (printf "${%s.%s}" $alert $name) (toString $value) $text -}}
{{- end -}}
{{- end -}}
{{- $groups := list -}}
{{- range ($text | fromYaml).groups -}}
{{- $rules := list -}}
{{- range .rules -}}
{{- if not (and .alert (has .alert $rule.disabled)) -}}
{{- $rules = append $rules . -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- $groups = append $groups (dict "name" .name "rules" $rules) -}}
{{- end -}}
{{- end -}}
{{- toYaml $groups -}}
{{- end -}}

{{/* `corvo.toml`: settings of no group first, then the groups. */}}
{{- define "corvo.toml" -}}
{{- range $key, $value := .Values.config }}
{{- if not (kindIs "map" $value) }}
{{ $key }} = {{ include "corvo.tomlValue" $value }}
{{- end }}
{{- end }}
{{- range $group, $settings := .Values.config }}
{{- if kindIs "map" $settings }}

[{{ $group }}]
{{- range $key, $value := $settings }}
{{ $key }} = {{ include "corvo.tomlValue" $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The port of the receiver of traces. */}}
{{- define "corvo.tracingPort" -}}
{{- $url := urlParse .Values.tracing.endpoint -}}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (eq $url.scheme "https" | ternary "443" "80") -}}
{{- end -}}
