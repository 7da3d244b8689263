"""Records as Arrow columns through librdkafka's C interface.

Belongs here: all ctypes and numba code, and the knowledge of librdkafka's memory layout, which is
declared in `bindings`.
Does not belong here: the meaning of a read or a transaction (`resources/kafka`).
"""
