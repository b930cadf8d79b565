"""What Apache Kafka keeps in ZooKeeper: the paths of its znodes (`paths`) and their contents (`values`).

As Apache Kafka 3.9.2 reads and writes them. Pure functions. `ZnodeError` names the path and the fault.
"""
