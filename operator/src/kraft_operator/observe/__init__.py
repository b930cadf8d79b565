"""What there is, with its age: of Kubernetes' objects, of the quorum, of the cluster's metadata.

Who calls it: the reconcilers of both worlds, once a pass. It must not change anything and must not decide: what is
unknown is None, and the planner knows what that permits.

- `kafka`    asks controllers and brokers, in Kafka's protocol; for both worlds
- `objects`  objects of Kubernetes -> the planner's model, a pure function
"""
