"""Settings of administrators for the whole cluster: configurations, quotas, access control, users, features."""
