{{- /* Written by `make chart` from k8s/ and tools/helm_chart: change it there. */ -}}
{{- /* The settings of the gateways, as JSON. */ -}}
{{- define "redbatch.gateway-settings" -}}
{{ merge (dict "REDBATCH_QUEUE" .Values.queue) .Values.gateway.settings | toJson }}
{{- end }}

{{- /* The hash that kustomize appends to the name of a ConfigMap with these data. */ -}}
{{- define "redbatch.hash" -}}
{{ dict "kind" "ConfigMap" "name" "" "data" . | toJson | sha256sum | trunc 10
    | replace "0" "g" | replace "1" "h" | replace "3" "k" | replace "a" "m" | replace "e" "t" }}
{{- end }}
