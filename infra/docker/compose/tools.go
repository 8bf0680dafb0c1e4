//go:build tools

// Package tools pins the Docker Compose that `infra/docker/compose.sh` builds where none is installed.
package tools

import _ "github.com/docker/compose/v2/cmd"
