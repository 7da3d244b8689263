"""Compare source, staged records and targets record by record.

Belongs here: snapshots of clusters, reading plans, digest and record passes, resuming.
Does not belong here: the comparison itself (`pipeline/verification`).
"""
