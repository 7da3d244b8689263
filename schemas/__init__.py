"""Nouns: partitions, segments, offset runs, flows, keys, tables, metrics and errors.

Belongs here: frozen values with the rules that they always keep, the declaration of every key,
table and metric, and every error with its hint.
Does not: what is done to them (`pipeline/`), files and connections (`resources/`).

It imports the standard library only.
"""
