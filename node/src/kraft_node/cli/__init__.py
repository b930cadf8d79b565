"""The programs: Kafka's tools under their own names (also with `.sh`), one module each.

Who calls it: the entry points in `pyproject.toml`, and scripts. A module here parses arguments, does its own reading
and printing and turns every expected failure into one line on standard error and exit code 1; it must hold no logic
that the node needs, and nothing imports it.

| program | module |
|-|-|
| `kafka-server-start` | `server_start` |
| `kafka-storage` | `storage`, with `storage_format` (what to write), `scram_argument` |
| `kafka-cluster` | `cluster`, with `client` |
| `kafka-dump-log` | `dump_log`, with `dump_text`, `record_text` |
| `kafka-metadata-shell` | `metadata_shell`, with `metadata_source` (files, the quorum), `metadata_tree` |
| (`make node`) | `local` |

Each starts within 0.2 s: what is heavy is imported where it is used. Flags, output and exit codes follow Kafka 4.3.1.
"""
