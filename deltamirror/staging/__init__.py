"""Copy source records to the lake: one tick of staging, and the index of staged segments.

Belongs here: planning with live clusters, commits, frontiers, re-created topics.
Does not belong here: the rules (`pipeline/staging`), files and tables (`resources/delta`).
"""
