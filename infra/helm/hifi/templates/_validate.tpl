{{/* Name of the ConfigMap that says which release has a stream. */}}
{{- define "hifi.claim" -}}
hifi-stream-{{ printf "%s/%s" (include "hifi.bootstrap" .) .Values.stream.name | sha256sum | trunc 12 }}
{{- end }}

{{/* Refuses values that the schema cannot judge, and says what to change. */}}
{{- define "hifi.validate" -}}
{{- $root := . -}}
{{- $values := .Values -}}
{{- $kafka := $values.kafka -}}
{{- $chosen := compact (list (ternary "kafka.bundled.enabled" "" $kafka.bundled.enabled) (ternary "kafka.strimzi.cluster" "" (ne $kafka.strimzi.cluster "")) (ternary "kafka.bootstrapServers" "" (ne $kafka.bootstrapServers ""))) -}}
{{- if ne (len $chosen) 1 -}}
{{- fail (printf "set one of kafka.bootstrapServers, kafka.strimzi.cluster and kafka.bundled.enabled; set are: %s" (join ", " $chosen | default "none")) -}}
{{- end -}}
{{- $security := include "hifi.security" . | fromYaml -}}
{{- if and (hasPrefix "SASL_" $security.protocol) (not $security.userSecret) -}}
{{- fail (printf "kafka.security.protocol %s needs kafka.security.userSecret, a Secret with the password of each user" $security.protocol) -}}
{{- end -}}
{{- if and (hasPrefix "SASL_" $security.protocol) (eq $security.mechanism "OAUTHBEARER") (not $security.tokenUrl) -}}
{{- fail "kafka.security.mechanism OAUTHBEARER needs kafka.security.tokenUrl" -}}
{{- end -}}
{{- if eq $values.image.tag "latest" -}}
{{- fail "image.tag is latest, which may be other code in each pod: name a version, with which the images were built (HIFI_TAG)" -}}
{{- end -}}
{{- range $file, $_ := $values.pipes.files -}}
{{- if not (regexMatch "^[A-Za-z0-9_][-._A-Za-z0-9]*$" $file) -}}
{{- fail (printf "pipes.files: %q is no file name of a ConfigMap; use letters, digits, - _ and ., or pipes.claim for folders" $file) -}}
{{- end -}}
{{- end -}}
{{- if gt (len (compact (list (ternary "f" "" (gt (len $values.pipes.files) 0)) $values.pipes.configMap $values.pipes.claim))) 1 -}}
{{- fail "set at most one of pipes.files, pipes.configMap and pipes.claim" -}}
{{- end -}}
{{- $running := include "hifi.running" . | fromYaml -}}
{{- range $name, $service := $running -}}
{{- $scaled := $service.scaled -}}
{{- if and $scaled (gt (int $service.values.min) (int $service.values.max)) -}}
{{- fail (printf "services.%s.min (%d) is above services.%s.max (%d)" $name (int $service.values.min) $name (int $service.values.max)) -}}
{{- end -}}
{{- $most := ternary (int $service.values.max) (int $service.values.replicas) (not (not $scaled)) -}}
{{- if and $service.scales (ne $name "ingest") (gt $most (int $values.stream.partitions)) -}}
{{- fail (printf "services.%s: %d instances are more than stream.partitions (%d): further ones get no work; lower services.%s.%s" $name $most (int $values.stream.partitions) $name (ternary "max" "replicas" (not (not $scaled)))) -}}
{{- end -}}
{{- if and $service.one (gt (int $service.values.replicas) 1) -}}
{{- fail (printf "services.%s.replicas is %d: run one instance" $name (int $service.values.replicas)) -}}
{{- end -}}
{{- end -}}
{{- range $name := list "enrich" "lake" -}}
{{- $values := index $values.services $name -}}
{{- $master := printf "HIFI_%s_MASTER" (upper $name) -}}
{{- if include "hifi.sparkExecutors" $values -}}
{{- range $place, $variables := dict (printf "services.%s.env" $name) ($values.env | default dict) "settings" $root.Values.settings -}}
{{- if hasKey $variables $master -}}
{{- fail (printf "%s.%s: services.%s.executors.instances sets it; leave one of the two out" $place $master $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $running.lake -}}
{{- $warehouses := index (include "hifi.variables" (list $root "lake" .) | fromYaml) "HIFI_PIPES_LAKE_WAREHOUSES" -}}
{{- if and (include "hifi.sparkExecutors" .values) (contains "s3://" $warehouses) -}}
{{- fail (printf "HIFI_PIPES_LAKE_WAREHOUSES (%s) has buckets, to which only the pod of lake writes: set services.lake.executors.instances to 0, or name folders of a volume only" $warehouses) -}}
{{- end -}}
{{- end -}}
{{- if and (hasKey $running "view") (not (include "hifi.hasPipes" $root)) -}}
{{- fail "services.view.enabled needs pipes.files, pipes.configMap or pipes.claim, with the declarations of views" -}}
{{- end -}}
{{- if $values.control.executor.enabled -}}
{{- if not $values.control.enabled -}}{{- fail "control.executor.enabled needs control.enabled" -}}{{- end -}}
{{- if not $values.control.executor.secret -}}{{- fail "control.executor.enabled needs control.executor.secret" -}}{{- end -}}
{{- if $values.autoscaling.enabled -}}{{- fail "control.executor.enabled needs autoscaling.enabled: false: scale would work against HorizontalPodAutoscalers" -}}{{- end -}}
{{- end -}}
{{- if hasKey $running "connect" -}}
{{- if not $values.connect.credentialsSecret -}}{{- fail "services.connect.enabled needs connect.credentialsSecret" -}}{{- end -}}
{{- if not (or (eq $security.protocol "PLAINTEXT") (and (eq $security.protocol "SASL_SSL") (eq $security.mechanism "SCRAM-SHA-512") $security.caSecret)) -}}
{{- fail "services.connect.enabled: Kafka Connect knows a Kafka without security, and SASL_SSL with SCRAM-SHA-512 and kafka.security.caSecret" -}}
{{- end -}}
{{- end -}}
{{- if and $values.colour.record (not $values.colour.name) -}}{{- fail "colour.record needs colour.name, blue or green" -}}{{- end -}}
{{- if and $values.test.pipe (not (and $values.test.keySecret $values.administrator.secret (hasKey $running "observe") (hasKey $running "ingest"))) -}}
{{- fail "test.pipe needs test.keySecret, administrator.secret, services.ingest and services.observe" -}}
{{- end -}}
{{- if and $values.test.pipe (not (contains "{id}" $values.test.event)) -}}{{- fail "test.event must have {id}, which is replaced by a new id" -}}{{- end -}}
{{- if and $values.route.enabled (not $values.route.parents) -}}{{- fail "route.enabled needs route.parents, the Gateways that the route belongs to" -}}{{- end -}}
{{- $colours := $values.colours -}}
{{- if $colours.enabled -}}
{{- if not $values.route.enabled -}}{{- fail "colours.enabled needs route.enabled, whose weights it sets" -}}{{- end -}}
{{- if $values.route.weights -}}{{- fail "route.weights: the service colours sets them; leave it empty" -}}{{- end -}}
{{- if ne $values.colour.record (printf "%s-control" $values.stream.name) -}}{{- fail (printf "colours.enabled needs colour.record: %s-control, where it writes the record of the colours" $values.stream.name) -}}{{- end -}}
{{- if ne (include "hifi.control" .) (printf "%s-%s" $values.stream.name $values.colour.name) -}}{{- fail (printf "colours.enabled needs control.enabled and control.name: %s-%s, where observe of this colour gives its verdicts" $values.stream.name $values.colour.name) -}}{{- end -}}
{{- if not (and $colours.url $colours.blue.kafka $colours.green.kafka) -}}{{- fail "colours.enabled needs colours.url, colours.blue.kafka and colours.green.kafka" -}}{{- end -}}
{{- if or (eq $colours.blue.name $colours.green.name) (eq $colours.blue.release $colours.green.release) -}}{{- fail "colours.blue and colours.green need different values of release and name" -}}{{- end -}}
{{- end -}}
{{- include "hifi.validateSettings" . -}}
{{- $claim := lookup "v1" "ConfigMap" .Release.Namespace (include "hifi.claim" .) -}}
{{- if $claim -}}
{{- $owner := index $claim.metadata.annotations "meta.helm.sh/release-name" | default "somebody else" -}}
{{- if ne $owner .Release.Name -}}
{{- fail (printf "the release %s has the stream %q on this Kafka already: choose another stream.name, or upgrade that release" $owner $values.stream.name) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Refuses variables that the chart sets by other values, and variables HIFI_… that a service does not know. */}}
{{- define "hifi.validateSettings" -}}
{{- $settings := .Files.Get "files/settings.json" | fromJson -}}
{{- $set := dict "HIFI_KAFKA" "kafka" "HIFI_STREAM" "stream.name" "HIFI_PARTITIONS" "stream.partitions" "HIFI_CREATE_TOPICS" "kafka.createTopics" "HIFI_DRAIN_S" "services.NAME.drainSeconds" "HIFI_COLOUR" "colour.name" "HIFI_COLOURS" "colour.record" "HIFI_CONTROL" "control.name" "HIFI_CONTROL_KAFKA" "control.kafka" "HIFI_EGRESS_ALLOW" "egress.allow" "HIFI_OBSERVE_URL" "consoles.observeUrl" "HIFI_MANAGE_URL" "consoles.manageUrl" "HIFI_CONNECT_CREDENTIALS_FILE" "connect.credentialsSecret" "HIFI_CONTROL_EXECUTOR" "control.executor" "HIFI_CONTROL_EXECUTOR_SECRET" "control.executor.secret" "HIFI_CONTROL_EXECUTOR_SECRET_FILE" "control.executor.secret" "HIFI_SCALE_BOUNDS" "services.NAME.min and max" "HIFI_SCALE_DOWN_AFTER_S" "autoscaling.downAfterSeconds" -}}
{{- $fixed := list "HIFI_HOST" "HIFI_PORT" "HIFI_INGEST_HOST" "HIFI_INGEST_PORT" "HIFI_OBSERVE_HOST" "HIFI_OBSERVE_PORT" "HIFI_MANAGE_HOST" "HIFI_MANAGE_PORT" "HIFI_VIEW_HOST" "HIFI_VIEW_PORT" "HIFI_VIEW_DATA" "HIFI_VIEW_DECLARATIONS" "HIFI_LOG_FORMAT" "HIFI_JARS" -}}
{{- $places := dict "settings" .Values.settings -}}
{{- range $name, $service := .Values.services -}}{{- $_ := set $places (printf "services.%s.env" $name) ($service.env | default dict) -}}{{- end -}}
{{- range $place, $variables := $places -}}
{{- range $variable, $_ := $variables -}}
{{- if not (regexMatch "^[A-Z][A-Z0-9_]*$" $variable) -}}
{{- fail (printf "%s.%s: variables are capital letters, digits and _" $place $variable) -}}
{{- end -}}
{{- if hasKey $set $variable -}}{{- fail (printf "%s.%s: set the value %s instead" $place $variable (index $set $variable)) -}}{{- end -}}
{{- if hasPrefix "HIFI_KAFKA_SECURITY_" $variable -}}{{- fail (printf "%s.%s: set the values of kafka.security or kafka.strimzi instead" $place $variable) -}}{{- end -}}
{{- if has $variable $fixed -}}{{- fail (printf "%s.%s: the images set it, and the chart's ports follow it" $place $variable) -}}{{- end -}}
{{- if hasPrefix "HIFI_" $variable -}}
{{- $readers := list -}}
{{- range $service, $names := $settings -}}{{- if has $variable $names -}}{{- $readers = append $readers $service -}}{{- end -}}{{- end -}}
{{- $name := trimSuffix ".env" (trimPrefix "services." $place) -}}
{{- if not $readers -}}{{- fail (printf "%s.%s: no service has this setting; docs/settings.md lists them" $place $variable) -}}{{- end -}}
{{- if and (ne $place "settings") (not (has $name $readers)) -}}
{{- fail (printf "%s.%s: %s does not have this setting, but %s" $place $variable $name (join ", " $readers)) -}}
{{- end -}}
{{- else if eq $place "settings" -}}
{{- fail (printf "settings.%s: settings begin with HIFI_; give other variables to the services that need them, services.NAME.env" $variable) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
