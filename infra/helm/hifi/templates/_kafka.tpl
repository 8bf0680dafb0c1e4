{{/* Host of the bundled broker, also for KEDA in a namespace of its own. */}}
{{- define "hifi.broker" -}}
{{ include "hifi.fullname" . }}-kafka.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "hifi.bootstrap" -}}
{{- $kafka := .Values.kafka -}}
{{- if $kafka.bundled.enabled -}}
{{ include "hifi.broker" . }}:9092
{{- else if $kafka.strimzi.cluster -}}
{{ $kafka.strimzi.cluster }}-kafka-bootstrap.{{ $kafka.strimzi.namespace | default .Release.Namespace }}.svc:{{ $kafka.strimzi.port }}
{{- else -}}
{{ $kafka.bootstrapServers }}
{{- end -}}
{{- end }}

{{- define "hifi.brokers" -}}
{{- ternary 1 (int .Values.kafka.brokers) .Values.kafka.bundled.enabled -}}
{{- end }}

{{/* How clients connect: the values of kafka.security, or what Strimzi has; YAML. */}}
{{- define "hifi.security" -}}
{{- $kafka := .Values.kafka -}}
{{- if $kafka.bundled.enabled -}}
protocol: PLAINTEXT
{{- else if $kafka.strimzi.cluster -}}
{{- $authentication := $kafka.strimzi.authentication -}}
protocol: {{ ternary "SASL_SSL" "SSL" (eq $authentication "scram-sha-512") }}
mechanism: SCRAM-SHA-512
caSecret: {{ $kafka.strimzi.cluster }}-cluster-ca-cert
caKey: ca.crt
userSecret: {{ ternary "" $kafka.security.userSecret (eq $authentication "none") | quote }}
user: {{ $kafka.security.user | quote }}
passwordKey: password
certificateKey: {{ ternary "user.crt" "" (eq $authentication "tls") | quote }}
privateKeyKey: user.key
{{- else -}}
{{ toYaml $kafka.security }}
{{- end -}}
{{- end }}

{{/* Variables that tell a user how to connect, as YAML. Takes a list: root, name of the user. */}}
{{- define "hifi.securityVariables" -}}
{{- $root := first . -}}
{{- $security := include "hifi.security" $root | fromYaml -}}
{{- $sasl := hasPrefix "SASL_" $security.protocol -}}
{{- $tls := hasSuffix "SSL" $security.protocol -}}
{{- if ne $security.protocol "PLAINTEXT" }}
HIFI_KAFKA_SECURITY_PROTOCOL: {{ $security.protocol }}
{{- end }}
{{- if and $tls $security.caSecret }}
HIFI_KAFKA_SECURITY_CA_FILE: /run/kafka/ca.pem
{{- end }}
{{- if $sasl }}
HIFI_KAFKA_SECURITY_MECHANISM: {{ $security.mechanism }}
HIFI_KAFKA_SECURITY_USER: {{ include "hifi.user" (list $root $security.user (last .)) | quote }}
HIFI_KAFKA_SECURITY_PASSWORD_FILE: /run/kafka/password
{{- if eq $security.mechanism "OAUTHBEARER" }}
HIFI_KAFKA_SECURITY_TOKEN_URL: {{ $security.tokenUrl | quote }}
HIFI_KAFKA_SECURITY_TOKEN_SCOPE: {{ $security.tokenScope | quote }}
{{- end }}
{{- else if and $tls $security.userSecret $security.certificateKey }}
HIFI_KAFKA_SECURITY_CERTIFICATE_FILE: /run/kafka/certificate.pem
HIFI_KAFKA_SECURITY_KEY_FILE: /run/kafka/key.pem
{{- end }}
{{- end }}

{{/* A name with {stream} and {service} filled in. Takes a list: root, template, service. */}}
{{- define "hifi.user" -}}
{{- index . 1 | replace "{stream}" (first .).Values.stream.name | replace "{service}" (last .) -}}
{{- end }}

{{/* Sources of the volume /run/kafka, as YAML. Takes a list: root, name of the user. */}}
{{- define "hifi.kafkaFiles" -}}
{{- $root := first . -}}
{{- $security := include "hifi.security" $root | fromYaml -}}
{{- $variables := include "hifi.securityVariables" . | fromYaml -}}
{{- if hasKey $variables "HIFI_KAFKA_SECURITY_CA_FILE" }}
- secret:
    name: {{ $security.caSecret }}
    items: [{key: {{ $security.caKey | quote }}, path: ca.pem}]
{{- end }}
{{- if hasKey $variables "HIFI_KAFKA_SECURITY_PASSWORD_FILE" }}
- secret:
    name: {{ include "hifi.user" (list $root $security.userSecret (last .)) }}
    items: [{key: {{ $security.passwordKey | quote }}, path: password}]
{{- end }}
{{- if hasKey $variables "HIFI_KAFKA_SECURITY_CERTIFICATE_FILE" }}
- secret:
    name: {{ include "hifi.user" (list $root $security.userSecret (last .)) }}
    items:
      - {key: {{ $security.certificateKey | quote }}, path: certificate.pem}
      - {key: {{ $security.privateKeyKey | quote }}, path: key.pem}
{{- end }}
{{- if and (has (last .) (list "collect" "connect")) $root.Values.connect.credentialsSecret }}
- secret:
    name: {{ $root.Values.connect.credentialsSecret }}
    items: [{key: {{ $root.Values.connect.credentialsKey | quote }}, path: connect_credentials}]
{{- end }}
{{- end }}
