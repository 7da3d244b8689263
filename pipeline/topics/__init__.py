"""Rules of remote topics: the names, partitions, configs and ACLs on the target.

Belongs here: functions from the source's state to the target's.
Does not: requests to clusters.
"""
