"""Opening a log: its files, its end, and which bytes to trust after an unclean stop."""
