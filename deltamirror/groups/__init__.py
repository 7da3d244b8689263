"""Consumer groups: snapshots, checkpoints, plans, synchronisation, offset syncs.

Belongs here: reading committed offsets, translating them, writing them to a target.
Does not belong here: the arithmetic of translation (`pipeline/offset_map`).
"""
