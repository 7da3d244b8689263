"""Rules of staging: which ranges to read, what segments result, which gaps they have.

Belongs here: functions of values.
Does not: clients, files, clocks.
"""
