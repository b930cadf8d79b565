"""The state of a partition that is not in use. A broker may hold 100,000 partitions, most of them idle.

| file | contents |
|---|---|
| `resting_log` | the base of a log: paths and names are computed, the state of producers is made on first use |
| `segment_files` | the base of a segment: handles exist only while a file is open |
| `offset_column` | the offsets of a topic's partitions in a checkpoint, 8 bytes each |
"""
