"""Values of Kafka: partitions, watermarks, topics, configs, ACLs."""
