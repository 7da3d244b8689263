"""What can be seen of a run: status, lag, metrics, heartbeats, dry runs.

Belongs here: collecting and serving state.
Does not: changing anything but the tables and topics that hold this state.
"""
