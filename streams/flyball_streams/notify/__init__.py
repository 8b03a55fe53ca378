"""Incidents to whoever is on call: Alertmanager, and webhooks that take what Alertmanager sends."""

from flyball_streams.notify.run import NotifierReport as NotifierReport, run_notifier as run_notifier
