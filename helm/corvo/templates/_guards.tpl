{{/* What is refused before anything is installed. Each message says what to do. */}}

{{/* Values that contradict each other. */}}
{{- define "corvo.checkValues" -}}
{{- $v := .Values -}}
{{- $nodes := int $v.replicaCount -}}
{{- if and (gt $nodes 1) (not $v.cluster.enabled) -}}
{{- fail (printf "replicaCount is %d, and cluster.enabled is false: set cluster.enabled=true, or replicaCount=1" $nodes) -}}
{{- end -}}
{{- if and $v.cluster.enabled (eq $v.cluster.formation "initial") (lt $nodes (int $v.cluster.initialNodes)) (not $v.cluster.allowScaleDown) -}}
{{- fail (printf "replicaCount is %d, and cluster.initialNodes is %d: the first nodes of a cluster must all exist. Set replicaCount to at least %d" $nodes (int $v.cluster.initialNodes) (int $v.cluster.initialNodes)) -}}
{{- end -}}
{{- if and $v.cluster.enabled (not $v.persistence.enabled) -}}
{{- fail "persistence.enabled is false, and cluster.enabled is true: a node that loses its disk is refused by the others. Set persistence.enabled=true, or cluster.enabled=false" -}}
{{- end -}}
{{- if and $v.persistence.existingClaim (gt $nodes 1) -}}
{{- fail "persistence.existingClaim is for one node: remove it, and each node gets a claim of its own" -}}
{{- end -}}
{{- if and $v.drain.enabled (lt (int $v.terminationGracePeriodSeconds) (add (max (int $v.drain.timeoutSeconds) (int $v.drain.serveSeconds)) 10 | int)) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d: set it to at least %d, which is the time of drain plus 10 seconds for the stop itself" (int $v.terminationGracePeriodSeconds) (add (max (int $v.drain.timeoutSeconds) (int $v.drain.serveSeconds)) 10 | int)) -}}
{{- end -}}
{{- if and $v.tls.enabled (not $v.tls.existingSecret) (not $v.tls.certManager.enabled) -}}
{{- fail "tls.enabled needs a certificate: set tls.existingSecret, or tls.certManager.enabled=true" -}}
{{- end -}}
{{- if and $v.cluster.tls.enabled (not $v.cluster.tls.existingSecret) (not $v.cluster.tls.certManager.enabled) -}}
{{- fail "cluster.tls.enabled needs certificates: set cluster.tls.existingSecret, or cluster.tls.certManager.enabled=true" -}}
{{- end -}}
{{- if and $v.tls.certManager.enabled (not $v.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.enabled needs tls.certManager.issuerRef, such as {name: letsencrypt, kind: ClusterIssuer}" -}}
{{- end -}}
{{- if and $v.cluster.tls.certManager.enabled (not $v.cluster.tls.certManager.issuerRef.name) -}}
{{- fail "cluster.tls.certManager.enabled needs cluster.tls.certManager.issuerRef, such as {name: corvo-ca, kind: Issuer}" -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.hosts) -}}
{{- fail "ingress.enabled needs ingress.hosts, such as [jobs.example.net]" -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor.enabled $v.auth.enabled (not $v.metrics.existingSecret) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics.existingSecret: create an API key with `corvo keys create prometheus --role readonly`, and put it into a Secret under metrics.apiKeyKey" -}}
{{- end -}}
{{- if and $v.tracing.enabled (not (regexMatch "^https?://[^/:]+(:[0-9]+)?(/.*)?$" $v.tracing.endpoint)) -}}
{{- fail "tracing.enabled needs tracing.endpoint, such as http://collector.monitoring:4318" -}}
{{- end -}}
{{- if $v.worker.enabled -}}
{{- if and $v.auth.enabled (not $v.worker.existingSecret) -}}
{{- fail "worker.enabled needs worker.existingSecret: create an API key with `corvo keys create NAME --role worker`, and put it into a Secret under worker.apiKeyKey" -}}
{{- end -}}
{{- if and (not $v.worker.command) (or (not $v.worker.queues) (not $v.worker.exec)) -}}
{{- fail "worker.enabled needs worker.queues and worker.exec, or worker.command" -}}
{{- end -}}
{{- if and (eq $v.worker.autoscaling.kind "keda") (not $v.worker.autoscaling.prometheusUrl) -}}
{{- fail "worker.autoscaling.kind=keda needs worker.autoscaling.prometheusUrl, such as http://prometheus.monitoring:9090" -}}
{{- end -}}
{{- if and (ne $v.worker.autoscaling.kind "none") (not $v.worker.queues) -}}
{{- fail "worker.autoscaling needs worker.queues: the workers follow the pending jobs of these queues" -}}
{{- end -}}
{{- if and (eq $v.worker.autoscaling.kind "hpa") (lt (int $v.worker.autoscaling.minReplicas) 1) -}}
{{- fail "worker.autoscaling.minReplicas is 0: only worker.autoscaling.kind=keda can scale to none" -}}
{{- end -}}
{{- end -}}
{{- include "corvo.checkConfig" . -}}
{{- end -}}

{{/* Settings that the chart makes from other values. */}}
{{- define "corvo.checkConfig" -}}
{{- $instead := dict "data_dir" "persistence" "bind" "service.port" "shards" "shards" "auth" "auth.enabled" "admin_key" "auth.existingSecret" "tls_cert" "tls.existingSecret" "tls_key" "tls.existingSecret" -}}
{{- $of := dict "node_id" "fullnameOverride" "peer_bind" "cluster.port" "advertise" "cluster.domain" "bootstrap" "cluster.formation" "join" "cluster.formation" "discover" "cluster.formation" "discover_dns_name" "cluster.formation" "initial_nodes" "cluster.initialNodes" "join_wait_ms" "cluster.joinWait" "zone" "cluster.zoneLabel" "secret" "cluster.existingSecret" "secret_file" "cluster.existingSecret" "tls_cert" "cluster.tls" "tls_key" "cluster.tls" "tls_ca" "cluster.tls" -}}
{{- range $key, $value := .Values.config -}}
{{- if hasKey $instead $key -}}
{{- fail (printf "config.%s is made by the chart: use the value %s" $key (get $instead $key)) -}}
{{- end -}}
{{- if kindIs "map" $value -}}
{{- range $name, $setting := $value -}}
{{- if and (eq $key "cluster") (hasKey $of $name) -}}
{{- fail (printf "config.cluster.%s is made by the chart: use the value %s" $name (get $of $name)) -}}
{{- end -}}
{{- if and (eq $key "webhooks") (eq $name "secrets") -}}
{{- fail "config.webhooks.secrets would be readable in a ConfigMap: set the variable CORVO_WEBHOOKS__SECRETS from a Secret, with extraEnv" -}}
{{- end -}}
{{- if kindIs "map" $setting -}}
{{- fail (printf "config.%s.%s is a group, and settings have one group only: see docs/config.md" $key $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Changes of the running release that would lose data or split the cluster: a dict of `root` and
     `live`, the StatefulSet as the Kubernetes API has it. Without a connection, `live` is empty. */}}
{{- define "corvo.checkLive" -}}
{{- $v := .root.Values -}}
{{- with .live -}}
{{- $had := int .spec.replicas -}}
{{- $wanted := int $v.replicaCount -}}
{{- if and (lt $wanted $had) (not $v.cluster.allowScaleDown) -}}
{{- fail (printf "replicaCount is %d, and the release has %d nodes: their replicas would be lost. Remove the nodes with the highest numbers first, one at a time: `corvo cluster drain NODE --wait 10m`, then `corvo cluster remove NODE`. Then set cluster.allowScaleDown=true for one upgrade" $wanted $had) -}}
{{- end -}}
{{- $noted := default dict .metadata.annotations -}}
{{- with get $noted "corvo/shards" -}}
{{- if ne . ($v.shards | int | toString) -}}
{{- fail (printf "shards is %d, and the release has %s: the number cannot be changed. Set shards=%s, or install a new release and move the jobs" (int $v.shards) . .) -}}
{{- end -}}
{{- end -}}
{{- if $v.cluster.enabled -}}
{{- $formation := get $noted "corvo/formation" -}}
{{- if and $formation (ne $formation "initial") (eq $v.cluster.formation "initial") -}}
{{- fail (printf "cluster.formation is initial, and the release has nodes that were formed by %s: new pods could form a second cluster beside them. Set cluster.formation=join" $formation) -}}
{{- end -}}
{{- /* Kubernetes waits until all new pods are ready before it replaces the first one. */ -}}
{{- if and (eq (default "" $formation) "one node") (gt $wanted $had) -}}
{{- fail (printf "replicaCount is %d, and the release has one node, which is no cluster yet: it must restart before others can join it. Upgrade with replicaCount=%d first, wait until the pod is replaced, and set replicaCount=%d then" $wanted $had $wanted) -}}
{{- end -}}
{{- with get $noted "corvo/initial-nodes" -}}
{{- if ne . ($v.cluster.initialNodes | int | toString) -}}
{{- fail (printf "cluster.initialNodes is %d, and the release was formed with %s: set it to %s. replicaCount alone adds nodes" (int $v.cluster.initialNodes) . .) -}}
{{- end -}}
{{- end -}}
{{- else if eq (get $noted "corvo/formation") "initial" "join" -}}
{{- fail "cluster.enabled is false, and the release is a cluster: set cluster.enabled=true. To return to one node, export the jobs into a new release" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A generated secret that is kept: a dict of `live`, the data of the Secret as the Kubernetes API
     has it, and `key`. */}}
{{- define "corvo.keptOrNew" -}}
{{- default (randAlphaNum 40 | b64enc) (get .live .key) -}}
{{- end -}}
