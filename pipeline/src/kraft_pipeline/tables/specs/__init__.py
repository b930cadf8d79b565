"""The specification of a table, parsed and checked."""
