"""Tables as files: storage, transactions, and the files that a writer intends to write."""
