{{/* Whether the cluster has Gateway API. */}}
{{- define "hifi.hasGateway" -}}
{{- if .Capabilities.APIVersions.Has "gateway.networking.k8s.io/v1" -}}true{{- end -}}
{{- end }}

{{/* Whether the service colours runs, which needs a route. */}}
{{- define "hifi.hasColours" -}}
{{- if and .Values.colours.enabled (include "hifi.hasGateway" .) -}}true{{- end -}}
{{- end }}

{{/* Service to weight, as YAML. With the service colours those that it has set, at first all requests for blue. */}}
{{- define "hifi.weights" -}}
{{- $weights := .Values.route.weights | default (dict (printf "%s-ingest" (include "hifi.fullname" .)) 1) -}}
{{- if .Values.colours.enabled -}}
{{- $weights = dict (printf "%s-ingest" .Values.colours.blue.name) 10000 (printf "%s-ingest" .Values.colours.green.name) 0 -}}
{{- $route := lookup "gateway.networking.k8s.io/v1" "HTTPRoute" .Release.Namespace (printf "%s-ingest" (include "hifi.fullname" .)) -}}
{{- if $route -}}
{{- range (first $route.spec.rules).backendRefs -}}
{{- if hasKey $weights .name }}{{ $_ := set $weights .name (int .weight) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $weights -}}
{{- end }}
