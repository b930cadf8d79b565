"""What administrators set for the whole cluster: configurations, quotas, access control, users, features."""
