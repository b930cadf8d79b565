"""What waits for the disk, so that the event loop does not.

| file | what it answers |
|---|---|
| `policy_flush` | when is durable what `flush.messages` asks for |
| `write_budget` | how much may be appended before the disk must catch up |
"""
