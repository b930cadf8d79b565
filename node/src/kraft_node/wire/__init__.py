"""Kafka's messages: what is sent between clients and nodes, and the schema-described part of what is stored.

Four steps, a module each. `schemas/` holds every message of the release in our own notation, a file an API (written by
`tools/import_schemas.py` from the released jars). `schema` reads a message of it. `decoder` and `encoder` turn a
message and version into one straight-line function that decodes and one that encodes. `codec` runs these. `messages`
(requests and responses) and `stored` (metadata records, coordinator keys and values, control records, quorum state)
hand out the classes, made on first use: a node that never sees a message never pays for it.

`api` knows keys, versions and listeners; `frames` puts headers and lengths around messages; `coordinator` puts types
and versions before the keys and values of the coordinators' topics; `error_response` answers a request with an error,
`long_answers` with a response that is put together in turns of the loop.
Nothing here knows what a message means, keeps state or touches the network.

Bounds: a declared length is compared with what is left in the buffer before anything is allocated for it, arrays by the
least that an element takes; strings have at most 32767 bytes and arrays `runtime.MAX_ELEMENTS` elements, whatever is
left. Messages nest as deep as their schema says, no deeper. Whatever is malformed is a `DecodeError`, whatever cannot
be written an `EncodeError`. Unknown tagged fields (KIP-482) are kept and written back.
"""
