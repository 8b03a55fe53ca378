"""What gateways see of the requests for workloads, replicas or not."""

from flyball_collectors.gateway.collector import GatewayCollector as GatewayCollector, gateways_of as gateways_of
