{{/* The number of pods in which Spark runs the tasks of a service; empty: it runs them in the service's own pod. */}}
{{- define "hifi.sparkExecutors" -}}
{{- with .executors -}}{{- if .instances }}{{ .instances }}{{ end -}}{{- end -}}
{{- end }}

{{/* Spark settings of a service whose tasks run in pods of their own, as JSON. Takes a list: root, name, values, further settings as JSON. */}}
{{- define "hifi.sparkConf" -}}
{{- $root := first . -}}
{{- $name := index . 1 -}}
{{- $executors := (index . 2).executors -}}
{{- $conf := dict
  "spark.kubernetes.namespace" $root.Release.Namespace
  "spark.kubernetes.driver.pod.name" "$(POD_NAME)"
  "spark.driver.host" "$(POD_IP)"
  "spark.kubernetes.authenticate.oauthTokenFile" "/run/kubernetes/token"
  "spark.kubernetes.authenticate.caCertFile" "/run/kubernetes/ca.crt"
  "spark.kubernetes.authenticate.executor.serviceAccountName" (printf "%s-%s-spark" (include "hifi.fullname" $root) $name)
  "spark.kubernetes.container.image" (include "hifi.image" (list $root $name))
  "spark.kubernetes.container.image.pullPolicy" $root.Values.image.pullPolicy
  "spark.kubernetes.executor.podTemplateFile" "/run/spark/executor.yaml"
  "spark.kubernetes.executor.disableConfigMap" "true"
  "spark.kubernetes.driver.ownPersistentVolumeClaim" "false"
  "spark.kubernetes.driver.service.deleteOnTermination" "false"
  "spark.kubernetes.executor.request.cores" (toString $executors.cpu)
  "spark.kubernetes.executor.limit.cores" (toString $executors.cpuLimit)
  "spark.executor.instances" (toString $executors.instances)
  "spark.executor.cores" (toString $executors.cores)
  "spark.executor.memory" (printf "%vm" $executors.heapMb)
  "spark.executor.memoryOverhead" (printf "%vm" $executors.overheadMb)
  "spark.executor.failuresValidityInterval" "10m"
  "spark.executor.extraJavaOptions" "-Xss8m"
  "spark.pyspark.python" "/opt/hifi/bin/python"
  "spark.driver.port" "7078"
  "spark.blockManager.port" "7079"
  "spark.authenticate" "true"
  "spark.network.crypto.enabled" "true"
-}}
{{- mergeOverwrite $conf (last . | fromJson) | toJson -}}
{{- end }}
