"""SASL on the connections of a node.

`login` is a client's state, `listeners` and `credentials` read the configuration by the keys in `keys`.
"""
