{{/* The restricted profile, for a pod. Files of volumes and Secrets are readable for user 10001. */}}
{{- define "hifi.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The same, for a container. */}}
{{- define "hifi.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  privileged: false
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "hifi.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Instances on different nodes and zones, where there are some. Takes a list: root, component. */}}
{{- define "hifi.spread" -}}
topologySpreadConstraints:
  {{- $labels := include "hifi.selector" . }}
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- $labels | nindent 8 }}
  {{- end }}
{{- end }}

{{/* Mounts and volumes of a service. Takes a list: root, name, values, user. */}}
{{- define "hifi.mounts" -}}
{{- $root := first . -}}
{{- $name := index . 1 -}}
{{- $values := index . 2 -}}
- {name: tmp, mountPath: /tmp}
{{- if not (has $name (list "connect" "colours-setup")) }}
{{- if include "hifi.hasPipes" $root }}
- {name: pipes, mountPath: /pipes, readOnly: true}
{{- end }}
{{- end }}
{{- if include "hifi.kafkaFiles" (list $root (last .)) | trim }}
- {name: kafka, mountPath: /run/kafka, readOnly: true}
{{- end }}
{{- if $values.secrets }}
- {name: secrets, mountPath: {{ ternary "/run/secrets/database" "/run/secrets" (eq $name "connect") }}, readOnly: true}
{{- end }}
{{- include "hifi.claimMounts" $values }}
{{- end }}

{{- define "hifi.volumes" -}}
{{- $root := first . -}}
{{- $name := index . 1 -}}
{{- $values := index . 2 -}}
- name: tmp
  emptyDir: {sizeLimit: {{ $values.tmp | default "64Mi" }}}
{{- if not (has $name (list "connect" "colours-setup")) }}
{{- include "hifi.pipesVolume" $root }}
{{- end }}
{{- with include "hifi.kafkaFiles" (list $root (last .)) | trim }}
- name: kafka
  projected:
    defaultMode: 0440
    sources:
      {{- . | nindent 6 }}
{{- end }}
{{- with $values.secrets }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range . }}
      - secret: {name: {{ . }}}
      {{- end }}
{{- end }}
{{- include "hifi.claimVolumes" $values }}
{{- end }}

{{- define "hifi.pipesVolume" -}}
{{- if .Values.pipes.claim }}
- name: pipes
  persistentVolumeClaim: {claimName: {{ .Values.pipes.claim }}, readOnly: true}
{{- else if include "hifi.hasPipes" . }}
- name: pipes
  configMap: {name: {{ .Values.pipes.configMap | default (printf "%s-pipes" (include "hifi.fullname" .)) }}}
{{- end }}
{{- end }}

{{/* The volumes that an operator names. Takes the values of a service. */}}
{{- define "hifi.claimMounts" -}}
{{- range $number, $volume := .volumes }}
- {name: volume-{{ $number }}, mountPath: {{ $volume.path | quote }}, readOnly: {{ $volume.readOnly | default false }}}
{{- end }}
{{- end }}

{{- define "hifi.claimVolumes" -}}
{{- range $number, $volume := .volumes }}
- name: volume-{{ $number }}
  persistentVolumeClaim: {claimName: {{ $volume.claim }}, readOnly: {{ $volume.readOnly | default false }}}
{{- end }}
{{- end }}

{{- define "hifi.hasPipes" -}}
{{- if or .Values.pipes.files .Values.pipes.configMap .Values.pipes.claim }}true{{ end -}}
{{- end }}

{{/* The volume with what actors show the executor. */}}
{{- define "hifi.executorSecret" -}}
- name: executor
  secret:
    secretName: {{ .Values.control.executor.secret }}
    defaultMode: 0440
    items: [{key: {{ .Values.control.executor.key | quote }}, path: secret}]
{{- end }}
