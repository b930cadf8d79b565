"""Connections to other nodes, and to the controller in the same process."""
