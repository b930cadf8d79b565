"""Clusters whose listeners require SASL, under seeds: `scenario` has the run, `intruder` the clients that must fail."""
