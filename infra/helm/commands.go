//go:build tools

// Package helm names the command, so that go.mod and go.sum cover it.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
