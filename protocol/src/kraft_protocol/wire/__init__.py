"""Kafka's messages: requests, responses, and the stored records that schemas describe.

Four steps, one module each. `schemas/` holds every message of the release in our own notation, one file per API
(`tools/import_schemas.py` writes them from the released jars). `schema` parses a message. `decoder` and `encoder`
compile a message and version into straight-line functions. `codec` runs these functions. `messages` (requests and
responses) and `stored` (metadata records, coordinator keys and values, control records, quorum state) provide the
classes. Each class is made on first use, so unused messages cost nothing.

`compiler` and `source` generate these functions, `runtime` helps them; `sizes` decides which messages are encoded in
steps. `stubs` writes the types for mypy, `errors` has the errors.

`api` holds keys, versions and listeners. `frames` adds headers and lengths to messages. `coordinator` adds types and
versions to the keys and values of the coordinators' topics. `error_response` builds error answers.
Nothing here knows the meaning of a message, keeps state or uses the network.

Limits: a declared length is compared with the rest of the buffer before memory is allocated for it. The length of an
array is first multiplied by the minimum size of an element. Strings have at most 32767 bytes, and arrays have at most
`runtime.MAX_ELEMENTS` elements. Messages nest only as deep as their schema. Malformed bytes raise `DecodeError`;
messages that cannot be written raise `EncodeError`. Unknown tagged fields (KIP-482) are kept and written back.
"""
