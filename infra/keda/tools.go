//go:build tools

// Package keda names KEDA's operator and metrics adapter, and JobSet's controller, which takes the same libraries, so
// that go.mod and go.sum cover them.
package keda

import (
	_ "github.com/kedacore/keda/v2/cmd/adapter"
	_ "github.com/kedacore/keda/v2/cmd/operator"
	_ "sigs.k8s.io/jobset"
)
