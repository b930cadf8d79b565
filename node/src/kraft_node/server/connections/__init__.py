"""The connections of clients: listeners, limits, requests in, responses out."""
