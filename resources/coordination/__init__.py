"""Which process performs a role, and what each process reports of itself.

Belongs here: leases and status files.
Does not: correctness, which compared txn versions and transactional ids hold.
"""
