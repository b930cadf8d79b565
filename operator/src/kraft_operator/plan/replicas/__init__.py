"""Moves of replicas between brokers."""
