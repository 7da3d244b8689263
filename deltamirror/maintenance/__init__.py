"""Keep the lake small and whole: retention, compaction, vacuum, restage, rebuilt offset maps.

Belongs here: what `deltamirror maintain` and the background do to the lake.
Does not: per-tick writes (`staging/`, `replay/`).
"""
