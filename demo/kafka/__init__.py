"""Local Kafka brokers for the demo and the tests: `python -m demo.kafka up` and `down`."""
