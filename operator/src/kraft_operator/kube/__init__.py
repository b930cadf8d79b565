"""The API server: a small client of our own, and the Lease.

Who calls it: `observe.kubernetes`, `apply.kubernetes`, the reconciler. It knows no clusters and no plans.

- `config` where the API server is, and who we are: a service account, or a kubeconfig
- `client` requests, with the retries that any caller wants: throttling and servers that come back
- `lease`  which of the operator's replicas works

Not the official client: its generated models take 40 MiB and a second of start-up for what are plain dictionaries here
(docs/decisions/0006). kopf watches; nothing here does.
"""
