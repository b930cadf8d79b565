"""Measures the node beside Apache Kafka on the same machine, and prints ratios.

`python -m bench` starts both in turn, several rounds, interleaved, with the same client, the same requests and the same
durability; medians and spread go to docs/benchmarks.md. `python -m bench.codec` and `python -m bench.image` measure
parts of the node alone.
"""
