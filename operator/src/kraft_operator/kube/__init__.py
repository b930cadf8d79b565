"""The API server, through the `kubernetes` package, and the Lease.

Who calls it: `observe`, `apply`, the reconcilers. It knows no clusters and no plans.

- `access` the login, as the package loads it: a service account, or kubeconfigs
- `client` seven verbs over plain dictionaries, with retries for throttling and servers that come back
- `lease`  which of the operator's replicas works

The package's models are not used (docs/decisions/0014). kopf watches; nothing here does.
"""
