"""Pair staged records with the records that a target already holds.

Belongs here: pairing after a lost map, and with what MirrorMaker 2 wrote.
Does not: reading either side.
"""
