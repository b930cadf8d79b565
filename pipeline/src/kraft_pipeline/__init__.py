"""Moves and analyses the data of a cluster with Spark."""
