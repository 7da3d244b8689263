"""Keep the lake small and repair it: retention, compaction, vacuum, restage, map rebuild.

Belongs here: the work of `deltamirror maintain` and of the maintenance thread.
Does not belong here: writes of a tick (`staging/`, `replay/`).
"""
