"""Rules as pure functions: planning, ordering, mapping, translating, comparing.

Belongs here: functions of values, batches and offsets, one package a subject. If a rule needs a
cluster or the lake, it declares a small Protocol beside the function that calls it.
Does not: connections (`resources/`), the order of steps (`deltamirror/`), nouns (`schemas/`).

It imports `schemas` only.
"""
