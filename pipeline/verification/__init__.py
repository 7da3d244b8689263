"""Rules of verification: how two sides are split into parts, digested and compared.

Belongs here: functions of records and digests.
Does not: reading either side.
"""
