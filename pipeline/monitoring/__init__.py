"""Rules of monitoring: lag, sampled values, health.

Belongs here: functions of offsets, times and states.
Does not: collecting them.
"""
