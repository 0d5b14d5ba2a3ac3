{{/* Parts of the server's pods. */}}

{{/* A probe: a dict of `name`, `path`, `probe`, `custom` and `scheme`. None of them asks for a
     quorum except readiness, which restarts nothing. */}}
{{- define "corvo.probe" -}}
{{- if .custom }}
{{ .name }}:
  {{- toYaml .custom | nindent 2 }}
{{- else if .probe.enabled }}
{{ .name }}:
  httpGet:
    path: {{ .path }}
    port: http
    scheme: {{ upper .scheme }}
  {{- toYaml (omit .probe "enabled") | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels of pods, without the version of the chart: a new chart alone restarts no node. A dict of
     `root`, `component` and `labels`. */}}
{{- define "corvo.podLabels" -}}
{{- $own := include "corvo.selector" . | fromYaml -}}
{{- merge $own .labels .root.Values.commonLabels (dict "app.kubernetes.io/part-of" "corvo") | toYaml -}}
{{- end -}}

{{/* Where pods are put: away from each other, and over zones. */}}
{{- define "corvo.placement" -}}
{{- $selector := dict "matchLabels" (include "corvo.selector" (dict "root" . "component" "server") | fromYaml) -}}
{{- $term := dict "labelSelector" $selector "topologyKey" "kubernetes.io/hostname" -}}
{{- if .Values.affinity }}
affinity:
  {{- toYaml .Values.affinity | nindent 2 }}
{{- else if eq .Values.podAntiAffinityPreset "soft" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          {{- toYaml $term | nindent 10 }}
{{- else if eq .Values.podAntiAffinityPreset "hard" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      {{- list $term | toYaml | nindent 6 }}
{{- end }}
{{- $zones := dict "maxSkew" 1 "topologyKey" "topology.kubernetes.io/zone" "whenUnsatisfiable" "ScheduleAnyway" }}
topologySpreadConstraints:
  {{- range default (list $zones) .Values.topologySpreadConstraints }}
  {{- list (merge (dict) . (dict "labelSelector" $selector)) | toYaml | nindent 2 }}
  {{- end }}
{{- end -}}
