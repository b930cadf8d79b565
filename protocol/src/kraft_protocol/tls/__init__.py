"""TLS without I/O: Kafka's `ssl.*` keys, key stores, contexts, and sessions between buffers.

`settings` parses the keys. `stores` and `jks` read PEM files, PKCS12 and JKS. `contexts` makes OpenSSL contexts,
`session` one connection's state. `errors` has the errors, `names` makes principals of certificates. Import `ssl` and
`cryptography` only through this package, and only if TLS is used: they need several MiB.
"""
