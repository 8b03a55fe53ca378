{{/* Labels of an object of a part. */}}
{{- define "flyball.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: flyball
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* Image of the agent, the worker or the actuator: by digest where one is given. */}}
{{- define "flyball.image" -}}
{{- $image := .root.Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}flyball-{{ .what }}
{{- with get $image (printf "%sDigest" .what) }}@{{ . }}{{ else }}:{{ $image.tag }}{{ end }}
{{- end }}

{{/* The configuration: this chart's own values, overridden by `config`. */}}
{{- define "flyball.config" -}}
{{- $values := .Values -}}
{{- $door := ternary "0.0.0.0" "127.0.0.1" $values.agent.metrics.open -}}
{{- $agent := dict "cell" $values.cell "root" "/host" "state_dir" "/var/lib/flyball" "disabled" (list "kmsg")
    "workloads" (dict "discover" (list "kubernetes"))
    "export" (dict "metrics_listen" (printf "%s:%v" $door $values.agent.metrics.port)) -}}
{{- $actuator := dict "mode" $values.actuator.mode "kill_switch" "/var/lib/flyball/stop" "ledger" "/var/lib/flyball/ledger" -}}
{{- if $values.actuator.ledgerClaim }}{{ $_ := set $actuator "audit" "/var/lib/flyball/audit" }}{{ end -}}
{{- with $values.actuator.allow }}{{ $_ := set $actuator "allow" . }}{{ end -}}
{{- $platforms := list -}}
{{- with $values.actuator.kueue.namespaces }}
{{- $platforms = append $platforms (dict "cells" (list $values.cell) "driver" "kueue" "namespaces" .
    "workloads" $values.actuator.kueue.workloads) -}}
{{- end -}}
{{- with $values.actuator.namespaces }}
{{- $entry := dict "cells" (list $values.cell) "driver" "kubernetes" "namespaces" . -}}
{{- if $values.actuator.check.image }}{{ $_ := set $entry "check" $values.actuator.check }}{{ end -}}
{{- $platforms = append $platforms $entry -}}
{{- end -}}
{{- with $platforms }}{{ $_ := set $actuator "platforms" . }}{{ end -}}
{{- $controller := dict "cell" $values.cell -}}
{{- with $values.controller.namespaces }}{{ $_ := set $controller "namespaces" . }}{{ end -}}
{{- $names := concat (list "flyball-dashboard" (printf "flyball-dashboard.%s.svc" .Release.Namespace)) $values.dashboard.names -}}
{{- $dashboard := dict "host" "0.0.0.0" "port" 8080 "names" $names -}}
{{- if $values.dashboard.tlsSecret }}{{ $_ := set $dashboard "certificate" "/etc/flyball-tls/tls.crt" }}{{ end -}}
{{- $kafka := dict "bootstrap" $values.kafka.bootstrap -}}
{{- with $values.kafka.client }}{{ $_ := set $kafka "client" . }}{{ end -}}
{{- $whole := dict "kafka" $kafka "agent" $agent "actuator" $actuator "controller" $controller "dashboard" $dashboard -}}
{{- if $values.worker.signingSecret }}{{ $_ := set $whole "worker" (dict "signing_key" "/etc/flyball-signing/signing.pem") }}{{ end -}}
{{- mergeOverwrite $whole (deepCopy $values.config) | toYaml }}
{{- end }}

{{/* One pod, closed as pod security restricted asks. root, name, image, args, resources; account: of a cloud; token: may call
the API server; probe: is watched by its health file; signing, tls, claim, env, ports: what it has besides. */}}
{{- define "flyball.pod" -}}
metadata:
  labels:
    {{- include "flyball.labels" . | nindent 4 }}
    {{- with (.account | default dict).podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    flyball.dev/config: {{ include "flyball.config" .root | sha256sum }}
spec:
  serviceAccountName: {{ .name }}
  automountServiceAccountToken: {{ .token | default false }}
  enableServiceLinks: false
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- if .once }}
  restartPolicy: OnFailure
  {{- end }}
  terminationGracePeriodSeconds: 30
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile:
      type: RuntimeDefault
  {{- if gt (int (.replicas | default 1)) 1 }}
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels:
                app.kubernetes.io/name: {{ .name }}
  {{- end }}
  containers:
    - name: {{ trimPrefix "flyball-" .name }}
      image: {{ include "flyball.image" (dict "root" .root "what" .image) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: {{ toJson .args }}
      {{- with .env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .ports }}
      ports:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        privileged: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      resources:
        {{- toYaml .resources | nindent 8 }}
      {{- if not .once }}
      startupProbe:
        exec:
          command: [flyball, health, /tmp/health]
        periodSeconds: 5
        timeoutSeconds: 10
        failureThreshold: 36
      livenessProbe:
        exec:
          command: [flyball, health, /tmp/health]
        periodSeconds: 30
        timeoutSeconds: 10
      readinessProbe:
        exec:
          command: [flyball, health, /tmp/health]
        periodSeconds: 30
        timeoutSeconds: 10
      {{- end }}
      volumeMounts:
        - {name: config, mountPath: /etc/flyball, readOnly: true}
        - {name: state, mountPath: /var/lib/flyball}
        - {name: tmp, mountPath: /tmp}
        {{- if .root.Values.kafka.secret }}
        - {name: kafka, mountPath: /etc/flyball-kafka, readOnly: true}
        {{- end }}
        {{- if .signing }}
        - {name: signing, mountPath: /etc/flyball-signing, readOnly: true}
        {{- end }}
        {{- if .tls }}
        - {name: tls, mountPath: /etc/flyball-tls, readOnly: true}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: flyball}
    - name: state
      {{- if .claim }}
      persistentVolumeClaim: {claimName: {{ .claim }}}
      {{- else }}
      emptyDir: {sizeLimit: 256Mi}
      {{- end }}
    - name: tmp
      emptyDir: {sizeLimit: 64Mi}
    {{- with .root.Values.kafka.secret }}
    - name: kafka
      secret: {secretName: {{ . }}, defaultMode: 288}
    {{- end }}
    {{- with .signing }}
    - name: signing
      secret: {secretName: {{ . }}, defaultMode: 288}
    {{- end }}
    {{- with .tls }}
    - name: tls
      secret: {secretName: {{ . }}, defaultMode: 288}
    {{- end }}
{{- end }}

{{/* A Deployment and what goes with it: its account and its disruption budget. */}}
{{- define "flyball.deployment" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "flyball.labels" . | nindent 4 }}
  {{- with (.account | default dict).annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "flyball.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "flyball.labels" . | nindent 4 }}
spec:
  replicas: {{ .replicas | default 1 }}
  {{- if .alone }}
  # Two would say the same twice; a new one begins where the topics are.
  strategy:
    type: Recreate
  {{- else }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 1, maxSurge: 0}
  {{- end }}
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  template:
    {{- include "flyball.pod" . | nindent 4 }}
{{- end }}

{{/* The roles in one of the files of infra/kubernetes, and their bindings for the cluster, as they stand there. */}}
{{- define "flyball.rights" -}}
{{- $root := .root }}{{- $namespace := .namespace }}
{{- range splitList "\n---\n" ($root.Files.Get .file) }}
{{- $document := fromYaml . }}
{{- if has $document.kind (list "ClusterRole" "ClusterRoleBinding") }}
{{- range ($document.subjects | default list) }}{{ $_ := set . "namespace" $namespace }}{{ end }}
{{- $_ := set $document.metadata "labels" (fromYaml (include "flyball.labels" (dict "root" $root "name" $document.metadata.name))) }}
---
{{ toYaml $document }}
{{- end }}
{{- end }}
{{- end }}
