{{/* Egress to DNS and to what all services of the release need, as YAML. */}}
{{- define "hifi.egressToDns" -}}
- to:
    {{- toYaml .Values.networkPolicy.dns | nindent 4 }}
  ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
{{- end }}

{{- define "hifi.egressToKafka" -}}
{{- if .Values.kafka.bundled.enabled }}
- to:
    - podSelector:
        matchLabels:
          {{- include "hifi.selector" (list . "kafka") | nindent 10 }}
  ports: [{protocol: TCP, port: 9092}]
{{- else if .Values.kafka.strimzi.cluster }}
- to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .Values.kafka.strimzi.namespace | default .Release.Namespace }}}}
      podSelector: {matchLabels: {strimzi.io/cluster: {{ .Values.kafka.strimzi.cluster }}}}
  ports: [{protocol: TCP, port: {{ .Values.kafka.strimzi.port }}}]
{{- else }}
{{ include "hifi.egressToServers" (list . (include "hifi.bootstrap" .)) }}
{{- end }}
{{- with .Values.networkPolicy.egress }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Egress to Kafkas of any address, or of those that the operator names. Takes a list: root, bootstrap servers. */}}
{{- define "hifi.egressToServers" -}}
{{- $ports := list -}}
{{- range last . | splitList "," }}{{ $ports = append $ports (splitList ":" . | last) }}{{ end -}}
- ports:
    {{- range uniq $ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with (first .).Values.networkPolicy.kafka }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* Egress to the Kubernetes API. */}}
{{- define "hifi.egressToApi" -}}
- ports: [{protocol: TCP, port: 443}, {protocol: TCP, port: 6443}]
  to:
    {{- .Values.networkPolicy.api | default (list (dict "ipBlock" (dict "cidr" "0.0.0.0/0")) (dict "ipBlock" (dict "cidr" "::/0"))) | toYaml | nindent 4 }}
{{- end }}

{{/* Egress to public addresses, as HIFI_EGRESS_ALLOW has them, and what the operator allows. */}}
{{- define "hifi.egressOutside" -}}
- to:
    - ipBlock:
        cidr: 0.0.0.0/0
        except: [0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 168.63.129.16/32, 169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24, 192.0.2.0/24, 192.168.0.0/16, 198.18.0.0/15, 198.51.100.0/24, 203.0.113.0/24, 224.0.0.0/4, 240.0.0.0/4]
    - ipBlock:
        cidr: 2000::/3
{{- with .Values.egress.rules }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Egress to a component of the release. Takes a list: root, component, port. */}}
{{- define "hifi.egressTo" -}}
- to:
    - podSelector:
        matchLabels:
          {{- include "hifi.selector" (list (first .) (index . 1)) | nindent 10 }}
  ports: [{protocol: TCP, port: {{ last . }}}]
{{- end }}

{{/* Name, pods and direction of a policy. Takes a list: root, component. */}}
{{- define "hifi.policy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "hifi.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "hifi.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
{{- end }}
