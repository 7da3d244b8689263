"""Generate pages of docs/ and check the repository. Not in the wheel.

Nothing that a run, a command or the demo needs belongs here.
"""
