"""Monitoring of a run: status, lag, metrics, heartbeats, dry runs.

Belongs here: collecting and serving state.
Does not belong here: changes, except to the tables and topics that hold this state.
"""
