//go:build tools

// Package kueue names Kueue's controller, so that go.mod and go.sum cover it.
package kueue

import _ "sigs.k8s.io/kueue/cmd/kueue"
