"""Rules of verification: how two sides are divided, summed and compared.

Belongs here: functions of records and digests.
Does not: reading either side.
"""
