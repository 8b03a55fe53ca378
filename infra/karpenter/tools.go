//go:build tools

// Package karpenter names Karpenter with its simulated cloud, so that go.mod and go.sum cover it.
package karpenter

import _ "sigs.k8s.io/karpenter/kwok"
