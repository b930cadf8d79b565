"""The API server, through the `kubernetes` package, and the Lease.

`observe`, `apply` and the reconcilers call it. It does not depend on clusters or plans.

- `access` the login that the package loads: a service account, or kubeconfigs
- `client` seven verbs over plain dictionaries, with retries for throttling and servers that come back
- `lease`  leader election among the operator's replicas

The package's models are not used (docs/decisions/0014). kopf watches; nothing here does.
"""
