"""Driver ``docker``: the containers of one machine, by the Docker Engine API."""

from flyball_actuators.platforms.docker.platform import DockerPlatform as DockerPlatform
