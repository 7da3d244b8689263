"""Kafka clients: admin requests, range readers, transactional producers, compacted topics.

Belongs here: everything that uses confluent-kafka's Python classes.
Does not: librdkafka's C interface (`resources/librdkafka`).
"""
