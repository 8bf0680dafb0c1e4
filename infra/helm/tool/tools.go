//go:build tools

// Package tools pins the Helm that `infra/helm/helm.sh` builds where none is installed.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
