"""Tests of `kraft_node.log`."""
