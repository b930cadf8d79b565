"""Who a client is and what it may do: SASL mechanisms, TLS identities, the authorizer (KIP-801).

Release 0.1 serves plain text and authorizes everybody: ACLs and SCRAM credentials are stored in the metadata log and
can be described, and nothing asks them yet. `broker` answers what needs an authorizer with SECURITY_DISABLED, as Apache
Kafka does without one.
"""
