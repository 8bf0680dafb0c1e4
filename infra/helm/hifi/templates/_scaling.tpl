{{/* Whether ScaledObjects are wanted and the cluster has KEDA. */}}
{{- define "hifi.hasKeda" -}}
{{- if and .Values.autoscaling.enabled .Values.autoscaling.keda.enabled (.Capabilities.APIVersions.Has "keda.sh/v1alpha1") }}true{{ end -}}
{{- end }}

{{/* As hifi's own autoscaler: to its double after 10 s; one instance less after two minutes. */}}
{{- define "hifi.scalingBehavior" -}}
{{- $after := int .Values.autoscaling.downAfterSeconds -}}
scaleUp:
  stabilizationWindowSeconds: 10
  policies: [{type: Percent, value: 100, periodSeconds: 10}]
scaleDown:
  stabilizationWindowSeconds: {{ $after }}
  policies: [{type: Pods, value: 1, periodSeconds: {{ max 1 $after }}}]
{{- end }}
