//go:build tools

// Package jobset names JobSet's controller, so that go.mod and go.sum cover it.
package jobset

import _ "sigs.k8s.io/jobset"
