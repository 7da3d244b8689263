"""`deltamirror run`: the loops of one process, their threads, and when the process ends.

Belongs here: supervision, tick order, periodic tasks, `--until-caught-up`, `--standby`.
Does not: what one tick of staging or replay does (`staging/`, `replay/`).
"""
