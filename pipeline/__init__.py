"""What is done to records on their way, as pure functions.

Put here: planning, ordering, mapping, translating, measuring, comparing. Values,
batches and DataFrames come in; values, batches and DataFrames go out. What a step asks
of a cluster or of a lake is a small Protocol beside the function that calls it.
Put elsewhere: anything that opens a connection (resources), anything that says when
(assets), anything that only describes (schemas).

Read in this order: plan, stage, seal, replay, map, translate, measure, verify.
"""
