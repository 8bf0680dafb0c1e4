{{/* Name of the control plane; empty: there is none. */}}
{{- define "hifi.control" -}}
{{- if .Values.control.enabled -}}{{ .Values.control.name | default (printf "%s-control" .Values.stream.name) }}{{- end -}}
{{- end }}

{{/* What pipes may connect to: the parts of this release that they need, and what the operator allows. */}}
{{- define "hifi.egressAllow" -}}
{{- $allow := list -}}
{{- $name := include "hifi.fullname" . -}}
{{- if .Values.destination.enabled }}{{ $allow = append $allow (printf "http=%s-destination:9100" $name) }}{{ end -}}
{{- if .Values.services.connect.enabled }}{{ $allow = append $allow (printf "connect=%s-connect:8083" $name) }}{{ end -}}
{{- if .Values.kafka.bundled.enabled }}{{ $allow = concat $allow (list (printf "kafka=%s-kafka:9092" $name) (printf "kafka=%s" (include "hifi.bootstrap" .))) }}{{ end -}}
{{- concat $allow .Values.egress.allow | join "," -}}
{{- end }}

{{/* The variables of a service, as YAML: variable to value. Takes a list: root, name, what it is. */}}
{{- define "hifi.variables" -}}
{{- $root := first . -}}
{{- $name := index . 1 -}}
{{- $service := last . -}}
{{- $fullname := include "hifi.fullname" $root -}}
{{- $values := $root.Values -}}
{{- $variables := dict "HIFI_KAFKA" (include "hifi.bootstrap" $root) "HIFI_STREAM" $values.stream.name -}}
{{- $variables = merge $variables (include "hifi.securityVariables" (list $root (ternary "publisher" $name (eq $name "setup"))) | fromYaml) -}}
{{- if eq $name "connect" -}}
{{- $variables = merge $variables (dict "CONNECT_HEAP_MB" $values.connect.heapMb "HIFI_CONNECT_CREDENTIALS_FILE" "/run/kafka/connect_credentials") -}}
{{- else -}}
{{- $defaults := dict "HIFI_ENRICH_DRIVER_MEMORY" "768m" "HIFI_PIPES_FUNCTION_FOLDERS" "/pipes" "HIFI_PIPES_LOOKUP_FOLDERS" "/pipes" "HIFI_PIPES_SECRET_FOLDERS" "/run/secrets:/run/secrets/database" "HIFI_PIPES_CREDENTIAL_FOLDERS" "/run/kafka" "HIFI_PIPES_SECRET_PREFIXES" "PIPE_" "HIFI_PIPES_OBJECT_FOLDERS" "/objects" "HIFI_PIPES_SOURCE_FOLDERS" "/sources" "HIFI_PIPES_LAKE_WAREHOUSES" "/lake" "HIFI_PIPES_RAW_VIEWS" "" -}}
{{- $variables = merge $variables (dict "HIFI_EGRESS_ALLOW" (include "hifi.egressAllow" $root)) -}}
{{- if ne $name "setup" }}{{ $_ := set $variables "HIFI_DRAIN_S" $service.values.drainSeconds }}{{ end -}}
{{- if $values.colour.name }}{{ $_ := set $variables "HIFI_COLOUR" $values.colour.name }}{{ end -}}
{{- if and $values.control.enabled $service.control -}}
{{- $_ := set $variables "HIFI_CONTROL" (include "hifi.control" $root) -}}
{{- if $values.control.kafka }}{{ $_ := set $variables "HIFI_CONTROL_KAFKA" $values.control.kafka }}{{ end -}}
{{- end -}}
{{- if $service.executor -}}
{{- $variables = merge $variables (dict "HIFI_CONTROL_EXECUTOR" (printf "http://%s-executor:9400" $fullname) "HIFI_CONTROL_EXECUTOR_SECRET_FILE" "/run/executor/secret") -}}
{{- end -}}
{{- if eq $name "scale" -}}
{{- $bounds := list -}}
{{- range $scaled, $other := include "hifi.running" $root | fromYaml -}}
{{- if $other.scaled }}{{ $bounds = append $bounds (printf "%s=%d-%d" $scaled (int $other.values.min) (int $other.values.max)) }}{{ end -}}
{{- end -}}
{{- $variables = merge $variables (dict "HIFI_SCALE_BOUNDS" (join "," $bounds) "HIFI_SCALE_DOWN_AFTER_S" $values.autoscaling.downAfterSeconds) -}}
{{- end -}}
{{- if and $values.colour.record (has $name (list "collect" "observe" "state")) }}{{ $_ := set $variables "HIFI_COLOURS" $values.colour.record }}{{ end -}}
{{- if and (eq $name "collect") $values.connect.credentialsSecret }}{{ $_ := set $variables "HIFI_CONNECT_CREDENTIALS_FILE" "/run/kafka/connect_credentials" }}{{ end -}}
{{- if eq $name "state" }}{{ $_ := set $variables "HIFI_STATE_DATA" "/tmp/state" }}{{ end -}}
{{- if eq $name "view" }}{{ $variables = merge $variables (dict "HIFI_VIEW_DECLARATIONS" "/pipes" "HIFI_VIEW_DATA" "/tmp/views") }}{{ end -}}
{{- if or $service.console (eq $name "view") -}}
{{- if $values.consoles.observeUrl }}{{ $_ := set $variables "HIFI_OBSERVE_URL" $values.consoles.observeUrl }}{{ end -}}
{{- if $values.consoles.manageUrl }}{{ $_ := set $variables "HIFI_MANAGE_URL" $values.consoles.manageUrl }}{{ end -}}
{{- end -}}
{{- if or $service.console (eq $name "view") -}}
{{- $host := printf "%s-%s.%s" $fullname $name $root.Release.Namespace -}}
{{- $_ := set $variables (printf "HIFI_%s_HOSTS" (upper $name)) (printf "%s,%s.svc,%s.svc.cluster.local" $host $host $host) -}}
{{- end -}}
{{- if $service.console -}}
{{- if $values.oidc.issuer -}}
{{- $variables = merge $variables (dict "HIFI_OIDC_ISSUER" $values.oidc.issuer "HIFI_OIDC_CLIENT_ID" $values.oidc.clientId "HIFI_OIDC_ROLES" $values.oidc.roles "HIFI_OIDC_ROLES_CLAIM" $values.oidc.rolesClaim "HIFI_OIDC_NAME_CLAIM" $values.oidc.nameClaim "HIFI_OIDC_SCOPES" $values.oidc.scopes) -}}
{{- if $values.oidc.clientSecret }}{{ $_ := set $variables "HIFI_OIDC_CLIENT_SECRET_FILE" "/run/oidc/client_secret" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $has := index ($root.Files.Get "files/settings.json" | fromJson) $name -}}
{{- range $variable, $value := merge (dict) $values.settings $defaults -}}
{{- if has $variable $has }}{{ $_ := set $variables $variable $value }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if $service.values -}}
{{- $variables = mergeOverwrite $variables $service.values.env -}}
{{- if include "hifi.sparkExecutors" $service.values -}}
{{- $_ := set $variables (printf "HIFI_%s_MASTER" (upper $name)) "k8s://https://kubernetes.default.svc" -}}
{{- $conf := printf "HIFI_%s_CONF" (upper $name) -}}
{{- $_ := set $variables $conf (include "hifi.sparkConf" (list $root $name $service.values (index $variables $conf | default "{}"))) -}}
{{- end -}}
{{- end -}}
{{- toYaml $variables -}}
{{- end }}

{{/* Variables as a container has them. Takes them as a dictionary. */}}
{{- define "hifi.env" -}}
{{- range $variable, $value := . }}
- name: {{ $variable }}
  value: {{ include "hifi.text" $value | quote }}
{{- end }}
{{- end }}
