"""Kubernetes: controllers scaled, suspended and resumed, pods moved off nodes."""

from flyball_actuators.platforms.kubernetes.platform import KubernetesPlatform as KubernetesPlatform
