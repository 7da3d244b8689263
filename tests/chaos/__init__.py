"""Chaos test: write, kill, freeze and cut at random; compare every record at the end.

`python -m tests.chaos --seed N --seconds S` shows one table and prints one JSON. The seed fixes the
order of the disasters and the records. The exact times at which processes die are not fixed.
"""
