"""Gateways' metrics of the requests for workloads, with or without replicas."""

from flyball_collectors.gateway.collector import GatewayCollector as GatewayCollector, gateways_of as gateways_of
