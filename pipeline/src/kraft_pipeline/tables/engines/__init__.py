"""How the batches of a table run: on Spark, or in this process."""
