"""Steps of the plan, done. Every one can be done again: whoever crashed after it plans it again, or sees it done.

Who calls it: the reconcilers, after planning. It must not decide what to do, and must not observe.

- `kafka`  what is done through the cluster's own protocol; for both worlds
"""
