"""The programs: Kafka's tools under their own names (also with `.sh`), one module each.

The entry points in `pyproject.toml` and scripts call them. A module here parses arguments, reads input, prints output,
and turns every expected failure into one line on standard error and exit code 1. It must hold no logic that the node
needs, and no other package imports it.

| program | module |
|-|-|
| `kafka-server-start` | `server_start` |
| `kafka-storage` | `storage`, with `storage_format` and `storage_dirs` (the files), `scram_argument` |
| `kafka-cluster` | `cluster`, with `client` |
| `kafka-dump-log` | `dump_log`, with `dump_text`, `record_text` |
| `kafka-metadata-shell` | `metadata_shell`, with `metadata_source` (files, the quorum), `metadata_tree` |
| (`make node`) | `local` |
| (`kraftcluster migrate`) | `migration_survey` |

`common` has what all programs share. Each program starts within 0.2 s: heavy modules are imported in the functions that
use them. Flags, output and exit codes follow Kafka 4.3.1.
"""
