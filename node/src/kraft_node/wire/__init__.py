"""Kafka's messages: what is sent between clients and nodes, and the schema-described part of what is stored.

Four steps, a module each. `schemas/*.ks` hold every message of the release in our own notation (written by
`tools/import_schemas.py` from the released jars). `schema` reads a message of it. `compiler` turns a message and
version into one straight-line function that encodes and one that decodes. `codec` runs these. `messages` (requests and
responses) and `stored` (metadata records, coordinator keys and values, control records, quorum state) hand out the
classes, made on first use: a node that never sees a message never pays for it.

`api` knows keys, versions and listeners; `frames` puts headers and lengths around messages; `error_response` answers a
request with an error. Nothing here knows what a message means, keeps state or touches the network.

Bounds: a declared length is compared with what is left in the buffer before anything is allocated for it, arrays by
the least that an element takes. Messages nest as deep as their schema says, no deeper. Whatever is malformed is a
`DecodeError`. Unknown tagged fields (KIP-482) are kept and written back.
"""
