"""Records as Arrow columns through librdkafka's C interface.

Belongs here: all ctypes, numba and knowledge of librdkafka's memory layout; `bindings` declares it.
Does not: what a read or a transaction means (`resources/kafka`).
"""
