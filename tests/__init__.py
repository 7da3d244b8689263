"""Tests in the packages of the product, and `stories/` on real brokers."""
