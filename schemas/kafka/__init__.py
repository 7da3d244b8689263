"""Kafka's nouns: partitions, watermarks, topics, configs, ACLs."""
