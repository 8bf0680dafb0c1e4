{{/*
What each service is, besides its values. `serves`: name and port of what it serves; `scales`: its instances share the load,
so that their number follows it; `lags`: topics that it reads; `outside`: pipes make it connect to addresses outside;
`control`: it takes part in the control plane; `executor`: it uses the executor; `console`: it lets people sign in; `one`: it runs once, so that its
pod is replaced after it has ended; `deploys`: deploy can give it another release; `processes`: it starts processes, which the pod's first process has to reap;
`shm`: size of /dev/shm, MiB; `starts`: longest start, seconds.
*/}}
{{- define "hifi.services" -}}
ingest: {serves: {name: events, port: 8080}, scales: true, deploys: true, starts: 300}
collect: {outside: true, control: true, processes: true, starts: 300}
normalize: {scales: true, deploys: true, lags: [raw], processes: true, starts: 300}
enrich: {outside: true, processes: true, shm: 256, starts: 600}
egest: {scales: true, deploys: true, lags: [enriched, retry-out], outside: true, starts: 300}
retrier: {scales: true, deploys: true, lags: [], starts: 300}
view: {serves: {name: views, port: 9400}, starts: 600}
lake: {outside: true, processes: true, shm: 512, starts: 600}
state: {control: true, processes: true, shm: 512, starts: 600}
observe: {serves: {name: console, port: 9200}, deploys: true, outside: true, control: true, console: true, starts: 300}
rollout: {control: true, one: true, starts: 300}
scale: {control: true, one: true, executor: true, starts: 300}
deploy: {control: true, one: true, executor: true, starts: 300}
manage: {serves: {name: console, port: 9300}, outside: true, control: true, console: true, processes: true, shm: 256, starts: 300}
connect: {serves: {name: rest, port: 8083}, outside: true, starts: 600}
{{- end }}

{{/* The services that run, as YAML: name to what it is, with `values`, and `scaled`: something changes their number. */}}
{{- define "hifi.running" -}}
{{- $root := . -}}
{{- $running := dict -}}
{{- $usual := dict "replicas" 1 "min" 1 "max" 4 "env" dict "secretEnv" list "secrets" list "volumes" list "podAnnotations" dict "nodeSelector" dict "tolerations" list "priorityClass" "" -}}
{{- range $name, $service := include "hifi.services" . | fromYaml -}}
{{- $values := merge (dict) (index $root.Values.services $name) $usual -}}
{{- $planned := or $root.Values.control.enabled (not (has $name (list "rollout" "scale" "deploy" "manage"))) -}}
{{- if $service.executor }}{{ $planned = $root.Values.control.executor.enabled }}{{ end -}}
{{- $scaler := and $values.enabled $service.scales (ternary "hpa" (ternary "executor" "" (and $root.Values.control.executor.enabled $root.Values.services.scale.enabled (ne $name "ingest"))) $root.Values.autoscaling.enabled) -}}
{{- if and $values.enabled $planned -}}
{{- $_ := set $running $name (merge (dict "values" $values "scaled" (not (empty $scaler))) $service) -}}
{{- end -}}
{{- end -}}
{{- toYaml $running -}}
{{- end }}
