"""The versions that the node states about itself."""

VERSION = "0.1.0"

COMPATIBLE_KAFKA_VERSION = "4.3.1"
"""The Apache Kafka release that the node follows in wire protocol, files, tools, configurations and metrics."""
