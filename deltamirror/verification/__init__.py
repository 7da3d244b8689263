"""Compare source, stage and targets record by record.

Belongs here: snapshots of clusters, reading plans, digest and record passes, resuming.
Does not: the comparison itself (`pipeline/verification`).
"""
