"""Rules of replay: which records to send, how to recover, what a point-in-time replay selects.

Belongs here: functions of values, and the Protocols that they call.
Does not: clients, files, clocks.
"""
