"""Value types, declarations of keys, tables and metrics, and errors.

Belongs here: frozen values with their invariants, the declaration of every key, table and metric,
and every error with its hint.
Does not: functions on these values (`pipeline/`), files and connections (`resources/`).

It imports the standard library only.
"""
