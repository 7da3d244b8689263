"""`deltamirror run`: the loops of one process, their threads, and when the process ends.

Belongs here: supervision, tick order, periodic tasks, `--until-caught-up`, `--standby`.
Does not belong here: the work of one tick of staging or replay (`staging/`, `replay/`).
"""
