{{- define "hifi.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "hifi" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-hifi" (.Release.Name | trunc 35 | trimSuffix "-") -}}
{{- end -}}
{{- end }}

{{/* Labels that choose the pods of a component. Takes a list: root, component. */}}
{{- define "hifi.selector" -}}
{{- $root := first . -}}
app.kubernetes.io/name: hifi
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{/* All labels of a resource. Takes a list: root, component. */}}
{{- define "hifi.labels" -}}
{{- $root := first . -}}
{{ include "hifi.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: hifi
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{/* Name and namespace, with labels. Takes a list: root, component. */}}
{{- define "hifi.metadata" -}}
{{- $root := first . -}}
name: {{ include "hifi.fullname" $root }}-{{ last . }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "hifi.labels" . | nindent 2 }}
{{- end }}

{{/* The image of a component. Takes a list: root, name of the image. */}}
{{- define "hifi.image" -}}
{{- $root := first . -}}
{{- $root.Values.image.registry }}hifi-{{ last . }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}
{{- end }}

{{/* A value of a variable: whole numbers in full. */}}
{{- define "hifi.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end }}
