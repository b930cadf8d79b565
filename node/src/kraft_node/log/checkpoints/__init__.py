"""The small files of directories and logs, each replaced atomically: identity, offsets, epochs, votes."""
