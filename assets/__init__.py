"""When, and in what order: Dagster assets, checks, jobs, the loops and the command line.

Put here: what exists after a run, named as its table; the wiring that hands resources to
pipeline; what an operator types.
Put elsewhere: any rule (pipeline), any connection (resources), any description (schemas).

An asset is a sentence: what it reads, which step it calls, what it leaves.
"""
