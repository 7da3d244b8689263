"""Rules of staging, replay, offset mapping, translation and verification, without I/O.

Belongs here: functions that take and return values, Arrow batches and tables. If a rule
needs a cluster or a lake, it takes a small Protocol that is declared in the same module.
Does not: opening connections (`resources`), deciding when a step runs (`deltamirror`,
`assets`), plain value types (`schemas`).

Read in this order: staging, replay, offset_map, topics, monitoring, verification.
"""
