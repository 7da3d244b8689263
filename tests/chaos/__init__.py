"""Chaos: all is written, killed, frozen and cut at random; at the end each record is counted.

`python -m tests.chaos --seed N --seconds S` shows one table and prints one JSON. The seed names the
order of the disasters and what is written; when a process dies, and doing what, is the machine's.
"""
