"""A voter that answers on a real socket and names any epoch in its answers."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any, Final

from kraft_node.raft import wire_form
from kraft_node.raft.membership.quorum import VoterSet
from kraft_node.raft.messages import (
    FENCED_LEADER_EPOCH,
    BeginQuorumEpochReply,
    EndQuorumEpochReply,
    FetchReply,
    Reply,
    VoteReply,
)
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.frames import decode_request_header, encode_response
from kraft_protocol.wire.messages import ApiVersionsResponse

ANSWERS: Final = (ApiKey.FETCH, ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.API_VERSIONS)


class HostileVoter:
    """Listens on a port until `close`; each connection has a thread."""

    def __init__(self, port: int, epoch: int) -> None:
        self.epoch = epoch
        self.answered: set[ApiKey] = set()
        self._socket = socket.create_server(("127.0.0.1", port))
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Close the listener and all connections."""
        for one in [self._socket, *self._connections]:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as incoming:
            try:
                while size := incoming.read(4):
                    header = decode_request_header(memoryview(incoming.read(struct.unpack(">i", size)[0])))
                    key = ApiKey(header.api_key)
                    response = self._answer(key, header.api_version)
                    parts = encode_response(header.correlation_id, key, header.api_version, response)
                    connection.sendall(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]
                    self.answered.add(key)
            except OSError:
                return

    def _answer(self, key: ApiKey, version: int) -> Any:
        if key is ApiKey.API_VERSIONS:
            rows = [ApiVersionsResponse.ApiVersion(k, API[k].min_version, API[k].max_version) for k in ANSWERS]
            return ApiVersionsResponse(api_keys=rows)
        kinds: dict[ApiKey, Reply] = {
            ApiKey.FETCH: FetchReply(FENCED_LEADER_EPOCH, self.epoch, 3),
            ApiKey.VOTE: VoteReply(FENCED_LEADER_EPOCH, self.epoch, 3),
            ApiKey.BEGIN_QUORUM_EPOCH: BeginQuorumEpochReply(FENCED_LEADER_EPOCH, self.epoch, 3),
            ApiKey.END_QUORUM_EPOCH: EndQuorumEpochReply(FENCED_LEADER_EPOCH, self.epoch, 3),
        }
        return wire_form.reply_to_wire(kinds[key], version, VoterSet(()), "CONTROLLER")
