"""deltamirror beside Apache Kafka's MirrorMaker 2: same machine, brokers, data, and in turn."""
