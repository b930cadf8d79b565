"""What the node reports about itself: metrics, probes, status."""
