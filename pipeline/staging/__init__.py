"""Rules of staging: which ranges to read, which segments result, which gaps they have.

Belongs here: functions of values.
Does not: clients, files, clocks.
"""
