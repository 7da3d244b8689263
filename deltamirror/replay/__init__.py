"""Write staged records to a target: one tick of replay, the offset map, point-in-time replay.

Belongs here: planning with live clusters, tasks, errors of single partitions.
Does not belong here: the rules (`pipeline/replay`), transactions (`resources/kafka`).
"""
