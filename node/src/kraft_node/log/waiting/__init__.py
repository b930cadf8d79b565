"""Waits for the disk, so that the event loop need not wait.

| file | question it answers |
|---|---|
| `policy_flush` | when are the flushes that `flush.messages` requires durable |
| `write_budget` | how much may be appended before the disk must catch up |
"""
