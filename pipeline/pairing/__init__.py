"""Pair staged records with the records that a target already holds.

Belongs here: pairing after the offset map was lost, and pairing with MirrorMaker 2's records.
Does not: reading either side.
"""
