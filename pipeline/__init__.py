"""Rules of staging, replay, offset mapping, translation and verification, without I/O.

Belongs here: functions of values, batches and offsets, one package per subject. If a rule needs a
cluster or the lake, its module declares a small Protocol for it.
Does not: connections (`resources/`), the order of steps (`deltamirror/`), values (`schemas/`).

It imports `schemas` only.
"""
