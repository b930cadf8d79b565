"""Dynamic voters (KIP-853) for simulated drivers: the formatted disk, tools' requests, and wire-level additions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.log_batches import voters_batch
from kraft_node.raft import wire_form
from kraft_node.raft.membership.voter_history import decode_voters, encode_kraft_version, encode_voters
from kraft_node.testing.raft.storage import BOOTSTRAP, EMPTY_CHAIN, Snapshot
from kraft_protocol.records.batch import iter_headers
from kraft_protocol.records.control import ControlType, iter_control_records
from kraft_protocol.wire import codec
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.messages import ApiVersionsResponse

if TYPE_CHECKING:
    from kraft_node.raft.membership.quorum import ReplicaKey, VoterSet
    from kraft_node.testing.raft.storage import ModelDisk

HOST: Final = "host"
"""Replica `n` listens on port `n` of this host."""


def format_disk(disk: ModelDisk, voters: VoterSet) -> None:
    """Write the bootstrap snapshot that names the first voters."""
    facts = [(ControlType.KRAFT_VERSION, encode_kraft_version(1)), (ControlType.KRAFT_VOTERS, encode_voters(voters))]
    data = voters_batch(0, 0, facts, 0)
    disk.files[BOOTSTRAP] = data
    disk.add_snapshot(Snapshot(BOOTSTRAP, EMPTY_CHAIN, len(data), 0))


def stated_in(data: bytes, header: Any) -> VoterSet | None:
    """The last voters that a batch states; None if it states none."""
    if not header.is_control:
        return None
    values = [c.value for c in iter_control_records(data, header) if c.type is ControlType.KRAFT_VOTERS]
    return decode_voters(values[-1]) if values else None


def stated_by_snapshot(data: bytes) -> VoterSet | None:
    """The voters in the bytes of a complete snapshot."""
    for header in iter_headers(data):
        voters = stated_in(data, header)
        if voters is not None:
            return voters
    return None


def tool_request(local: ReplicaKey, voters: VoterSet, request: Any) -> tuple[Any, int, bytes]:
    """A tool's request in bytes, in the form of `DrivenReplica.wires`."""
    message = wire_form.request_to_wire(request, local, voters)
    spec = API[message.SCHEMA.api_key]
    return spec, spec.max_version, codec.encode(message, spec.max_version)


def supported_versions() -> Any:
    """A listener's ApiVersions response, as far as the core needs it: the range of kraft.version."""
    feature = ApiVersionsResponse.SupportedFeatureKey("kraft.version", 0, 1)
    return ApiVersionsResponse(supported_features=[feature])


def is_versions(spec: Any) -> bool:
    """Whether a request is ApiVersions: the simulator answers it without the driver."""
    return spec.key is ApiKey.API_VERSIONS
