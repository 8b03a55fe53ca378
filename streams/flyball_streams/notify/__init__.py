"""Delivers incidents to Alertmanager, and to webhooks in Alertmanager's format."""

from flyball_streams.notify.run import NotifierReport as NotifierReport, run_notifier as run_notifier
