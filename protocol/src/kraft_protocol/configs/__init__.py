"""The configuration keys of nodes, topics, groups and quotas, as facts: the node parses by them, the operator checks.

- `kafka`: the keys of Apache Kafka, written by `tools/import_configs` from a release.
- `rows`: reads the lines of the tables.
- `names`: listener prefixes of keys, and which values are secrets.
- `own`: the keys that Kafka's tables lack.
- `properties`: the text form of java.util.Properties.
- `providers`: values for variables such as `${env:NAME}`.
"""
