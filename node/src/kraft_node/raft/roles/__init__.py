"""The roles of a replica, and the transitions between them."""
