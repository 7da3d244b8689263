"""Rules of replay: what to send next, how to recover, what a point-in-time replay selects.

Belongs here: functions of values, and the ports that they call.
Does not: clients, files, clocks.
"""
