"""Rules for remote topics: names, partitions, configs and ACLs that a target should have.

Belongs here: functions from the source's state to the target's.
Does not: requests to clusters.
"""
