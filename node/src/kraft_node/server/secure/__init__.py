"""How a node secures its listeners and its connections to other nodes: TLS and SASL, from the configuration."""
