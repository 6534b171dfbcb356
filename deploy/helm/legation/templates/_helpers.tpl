{{- define "legation.name" -}}
{{ .Release.Name | trunc 30 | trimSuffix "-" }}
{{- end -}}

{{- define "legation.selector" -}}
app.kubernetes.io/name: legation
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "legation.labels" -}}
{{ include "legation.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* What the server and the migration have in common: the image, the secrets, the safeguards. */}}
{{- define "legation.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "legation.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- with .Values.env }}
env: {{ toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - {name: platform, mountPath: /srv/legation/platform.toml, subPath: platform.toml, readOnly: true}
  - {name: secrets, mountPath: /run/secrets/legation, readOnly: true}
  - {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "legation.volumes" -}}
- name: secrets
  secret: {secretName: {{ .Values.existingSecret | quote }}, defaultMode: 0440}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end -}}
