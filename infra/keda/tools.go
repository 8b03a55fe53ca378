//go:build tools

// Package keda names KEDA's operator and metrics adapter, so that go.mod and go.sum cover them.
package keda

import (
	_ "github.com/kedacore/keda/v2/cmd/adapter"
	_ "github.com/kedacore/keda/v2/cmd/operator"
)
