"""The broker's part in transactions: it verifies appends with their coordinators, and writes their markers."""
