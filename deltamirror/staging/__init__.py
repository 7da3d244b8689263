"""Copy source records to the lake: one tick of staging, and the index of what is staged.

Belongs here: planning with live clusters, commits, frontiers, re-created topics.
Does not: the rules (`pipeline/staging`), files and tables (`resources/delta`).
"""
