//go:build tools

// Package serving names the controller, so that go.mod and go.sum cover it.
package serving

import _ "sigs.k8s.io/lws/cmd"
