"""Nodes as processes on a file system that loses what was not fsynced, with the power cut at chosen writes."""
