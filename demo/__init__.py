"""The demo: `python -m demo` mirrors real flights between two local clusters. Not in the wheel.

Belongs here: the walk-through, its data, its local brokers, Dagster's UI on them.
Does not: anything that the product imports.
"""
