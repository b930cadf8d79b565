"""The parts of the Produce handler: checks of batches, verification of transactions, waiting for replication."""
