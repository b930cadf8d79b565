"""The reports of the node about itself: metrics, probes, status."""
