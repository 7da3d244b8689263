"""Apache Kafka's own acceptance list of MirrorMaker 2 (`connect/mirror` 4.3.0), test by test.

Each test has the name of its counterpart there, in this project's spelling, and asks at least what
that one asks; where MirrorMaker 2 may re-read some records, nothing is re-read here. As there, the
suite is gone through with names as they are (identity), with transactional producers, and with a
target that is reached by TLS alone, too. `docs/mm2-parity.md` lists them all.
"""
