{{/* On every object. */}}
{{- define "fedq.labels" -}}
app.kubernetes.io/part-of: fedq
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* What selects the pod; the same as without Helm, since a Deployment's selector never changes. */}}
{{- define "fedq.selectorLabels" -}}
app.kubernetes.io/name: fedqd
{{- end }}

{{/* fedqd.yaml: what deploy/hub/config.yaml has, the release's namespace, and on top what the values say. */}}
{{- define "fedq.config" -}}
{{- $shipped := .Files.Get "files/config.yaml" | fromYaml -}}
{{- $config := index $shipped.data "fedqd.yaml" | fromYaml -}}
{{- if ne .Release.Namespace "fedq-system" }}{{ $_ := set $config "namespace" .Release.Namespace }}{{ end -}}
{{- if .Values.enableMutatingAdmissionPolicy }}{{ $_ := set $config "multikueue" (dict "dispatcher" true) }}{{ end -}}
{{- mergeOverwrite $config (deepCopy .Values.managerConfig) | toYaml -}}
{{- end }}

{{/* The port of an address in the configuration: (list "0.0.0.0:8750" of the map) */}}
{{- define "fedq.port" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end }}

{{- define "fedq.webhookAddress" -}}
{{- $config := include "fedq.config" . | fromYaml -}}
{{- dig "webhook" "address" "0.0.0.0:9443" $config -}}
{{- end }}

{{- define "fedq.kueueNamespace" -}}
{{- dig "multikueue" "kueueNamespace" "kueue-system" .Values.managerConfig -}}
{{- end }}

{{/*
The objects of a manifest in files, which `kubectl apply -k deploy/hub` applies as well: in the namespaces of this release.
(dict "root" . "file" NAME "without" API-GROUPS "annotations" MAP "but" NAMES-OF-OBJECTS)
*/}}
{{- define "fedq.shipped" -}}
{{- $root := .root -}}
{{- $but := .but | default list -}}
{{- $without := .without | default list -}}
{{- $text := $root.Files.Get (print "files/" .file) | required (print "files/" .file " is missing") -}}
{{- $text = $text | replace "kueue-system" (include "fedq.kueueNamespace" $root) | replace "fedq-system" $root.Release.Namespace -}}
{{- range $document := splitList "\n---\n" $text -}}
{{- $object := $document | fromYaml -}}
{{- if not (has $object.metadata.name $but) -}}
{{- $labels := include "fedq.labels" $root | fromYaml -}}
{{- $_ := set $object.metadata "labels" (merge $labels ($object.metadata.labels | default dict)) -}}
{{- with $.annotations }}{{ $_ := set $object.metadata "annotations" (merge (deepCopy .) ($object.metadata.annotations | default dict)) }}{{ end -}}
{{- if $object.rules -}}
{{- $rules := list -}}
{{- range $rule := $object.rules -}}
{{- if not (has (first $rule.apiGroups) $without) }}{{ $rules = append $rules $rule }}{{ end -}}
{{- end -}}
{{- $_ := set $object "rules" $rules -}}
{{- end }}
---
{{ toYaml $object }}
{{- end -}}
{{- end -}}
{{- end }}
