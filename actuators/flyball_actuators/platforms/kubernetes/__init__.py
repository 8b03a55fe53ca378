"""Driver ``kubernetes``: scales, suspends and resumes controllers, moves pods off nodes, checks nodes."""

from flyball_actuators.platforms.kubernetes.platform import KubernetesPlatform as KubernetesPlatform
