"""Certificates of a cluster: its two authorities, and the certificates of its nodes and of the operator.

- `certificates` makes and reads certificates, as PEM texts
- `authorities`  the next state of an authority: made, renewed, replaced in phases. Pure
- `nodes`        which certificate a node needs, with which names. Pure
- `names`        of stored objects and files, without any certificate
- `keeper`       brings stored certificates to what they should be, for a store of either kind
- `client`       the operator's own connections to the nodes
- `cluster_security`  the store on Kubernetes; `kraft_local.security` has the one in a folder
- `listeners`    certificates of listeners from other authorities. Pure;  `listener_secrets` their Secrets
- `wanted`       what the specification and annotations ask
"""
