{{/* The plugin directory on the nodes (agent/src/install/distribution.rs); / if the installer must detect the distribution. */}}
{{- define "rdmanet.place" -}}
{{- $dirs := dict "auto" "/" "k3s" "/var/lib/rancher/k3s/data/cni" "microk8s" "/var/snap/microk8s/current/opt/cni/bin" "openshift" "/var/lib/cni/bin" -}}
{{- .Values.cniBinDir | default (get $dirs .Values.distribution) | default "/opt/cni/bin" -}}
{{- end -}}

{{/* A manifest of conf/ in the namespace of the release, without the Namespace object: the user of Helm creates it. */}}
{{- define "rdmanet.manifest" -}}
{{- range $document := splitList "\n---\n" (.Files.Get .file) }}
{{- if not (contains "\nkind: Namespace\n" $document) }}
---
{{ replace "rdmanet-system" $.Release.Namespace $document }}
{{- end }}
{{- end }}
{{- end -}}
