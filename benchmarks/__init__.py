"""How fast, and at what cost: each number of the README is made here, from one run.

Put here: one script for each measure, what they stand on (brokers, a meter), and the report.
Put elsewhere: anything that the product needs to run.
"""
