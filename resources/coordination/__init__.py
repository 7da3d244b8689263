"""Leases of roles, and the status files of the processes that hold them.

Belongs here: leases and status files.
Does not: correctness, which txn version checks and transactional ids ensure.
"""
