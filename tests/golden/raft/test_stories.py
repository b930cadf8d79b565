"""Scripts for the raft core: each file beside this one lists events of a node and the effects that the node requests.

A line `> word arguments` is an event. The indented lines under it are the node's effects, in order. `@ 120` sets the
clock. Lines before the first event set the node up. Run with `UPDATE_GOLDEN=1` to rewrite the effects; then read the
diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_node.raft import events
from kraft_node.raft import messages as m
from kraft_node.raft import ready as do
from kraft_node.raft.log_view import EpochEnd, LogView, SnapshotId
from kraft_node.raft.membership.quorum import NO_NODE, QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.node import RaftNode
from kraft_protocol.ids import ZERO_UUID, Uuid

MANY = ("appends", "messages")
STORIES = sorted(Path(__file__).parent.glob("*.story"))


class Middle:
    """Randomness without surprises: always the middle of the range."""

    def randrange(self, stop: int) -> int:
        return stop // 2

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


def key(text: str) -> ReplicaKey:
    node_id, _, directory = text.partition("/")
    return ReplicaKey(int(node_id), Uuid(directory.encode() * 16) if directory else ZERO_UUID)


def pairs(text: str) -> list[tuple[int, int]]:
    found = [part.split(":") for part in text.split(",") if part]
    return [(int(left), int(right)) for left, right in found]


class Story:
    def __init__(self) -> None:
        self.settings: dict[str, str] = {"id": "1/A", "voters": "1", "state": "0", "log": "", "end": "0", "start": "0"}
        self.node: RaftNode | None = None
        self.now = 0
        self.sent: dict[tuple[int, str], int] = {}
        self.state = QuorumState()

    def build(self) -> RaftNode:
        s = self.settings
        epoch, _, rest = s["state"].partition(" ")
        parts = dict(part.split("=") for part in rest.split())
        state = QuorumState(int(epoch), int(parts.get("leader", NO_NODE)), key(parts.get("voted", "-1")))
        snapshots = [SnapshotId(*pair) for pair in pairs(s.get("snapshots", ""))]
        return RaftNode(
            local=key(s["id"]),
            voters=VoterSet([Voter(key(voter)) for voter in s["voters"].split()]),
            log=LogView(int(s["start"]), int(s["end"]), pairs(s["log"]), snapshots),
            state=state,
            rng=Middle(),
            cluster_id="cluster",
            is_amnesiac=s.get("disk") == "wiped",
        )

    def tell(self, line: str) -> Iterator[str]:
        if self.node is None:
            self.node = self.build()
        words = line.split()
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        plain = [word for word in words[1:] if "=" not in word]
        event = EVENTS[words[0]](self, plain, options)
        ready = self.node.step(event, self.now)
        self.state = ready.state or self.state
        for message in [*ready.messages, *ready.after_state]:
            if isinstance(message, do.Send):
                self.sent[message.node_id, type(message.request).__name__] = message.number
        for name, value in ready.work():
            yield f"{name.removesuffix('s') if name in MANY else name}: {show(value)}"

    def number(self, node_id: str, kind: str) -> int:
        return self.sent[int(node_id), kind]


def _answered(kind: str, make: Callable[[list[str], dict[str, str]], Any]) -> Callable[..., events.Event]:
    def event(story: Story, plain: list[str], options: dict[str, str]) -> events.Event:
        reply = None if "fails" in plain else make(plain, options)
        return events.Answered(story.number(plain[0], kind), reply)

    return event


def _error(options: dict[str, str]) -> int:
    return int(options.get("error", 0))


def _leader(options: dict[str, str]) -> int:
    return int(options.get("leader", NO_NODE))


def _vote_reply(plain: list[str], o: dict[str, str]) -> m.VoteReply:
    return m.VoteReply(_error(o), int(o["epoch"]), _leader(o), "grants" in plain)


def _fetch_reply(plain: list[str], o: dict[str, str]) -> m.FetchReply:
    batches = tuple(
        m.FetchedBatch(*(int(n) for n in part.split("-"))) for part in o.get("batches", "").split(",") if part
    )
    return m.FetchReply(
        _error(o),
        int(o["epoch"]),
        _leader(o),
        int(o.get("hw", -1)),
        0,
        EpochEnd(*pairs(o["diverging"])[0]) if "diverging" in o else None,
        SnapshotId(*pairs(o["snapshot"])[0]) if "snapshot" in o else None,
        batches,
        b"bytes",
    )


def _chunk(plain: list[str], o: dict[str, str]) -> m.FetchSnapshotReply:
    snapshot = SnapshotId(*pairs(o["snapshot"])[0])
    data = b"x" * int(o.get("bytes", 0))
    return m.FetchSnapshotReply(_error(o), int(o["epoch"]), _leader(o), snapshot, int(o["size"]), int(o["at"]), data)


def _vote(story: Story, plain: list[str], o: dict[str, str]) -> events.Event:
    last_epoch, end = pairs(o["log"])[0]
    voter = key(o["to"]) if "to" in o else None
    pre = "pre" in plain
    return events.Requested(plain[0], m.VoteRequest(int(o["epoch"]), key(o["from"]), last_epoch, end, pre, voter))


def _fetch(story: Story, plain: list[str], o: dict[str, str]) -> events.Event:
    hw = int(o.get("hw", m.NO_HIGH_WATERMARK))
    last = int(o.get("last", 0))
    request = m.FetchRequest(int(o["epoch"]), key(o["from"]), int(o["offset"]), last, 1000, int(o.get("wait", 500)), hw)
    return events.Requested(plain[0], request)


def _fetch_snapshot(story: Story, plain: list[str], o: dict[str, str]) -> events.Event:
    snapshot = SnapshotId(*pairs(o["snapshot"])[0])
    request = m.FetchSnapshotRequest(int(o["epoch"]), key(o["from"]), snapshot, int(o.get("at", 0)), 1000)
    return events.Requested(plain[0], request)


def _begin(story: Story, plain: list[str], o: dict[str, str]) -> events.Event:
    return events.Requested(plain[0], m.BeginQuorumEpochRequest(int(o["epoch"]), _leader(o)))


def _end(story: Story, plain: list[str], o: dict[str, str]) -> events.Event:
    successors = tuple(key(part) for part in o["successors"].split(",") if part)
    return events.Requested(plain[0], m.EndQuorumEpochRequest(int(o["epoch"]), _leader(o), successors))


EVENTS: dict[str, Callable[..., events.Event]] = {
    "start": lambda s, p, o: events.Started(),
    "tick": lambda s, p, o: events.Tick(),
    "state-written": lambda s, p, o: events.QuorumStateWritten(s.state),
    "flushed": lambda s, p, o: events.Flushed(int(p[0])),
    "propose": lambda s, p, o: events.Propose(int(o["epoch"]), [[word.encode() for word in p]]),
    "resign": lambda s, p, o: events.Resign(int(o["epoch"])),
    "shutdown": lambda s, p, o: events.Shutdown(),
    "snapshot-stored": lambda s, p, o: events.SnapshotStored(SnapshotId(*pairs(p[0])[0])),
    "snapshots-dropped": lambda s, p, o: events.SnapshotsDropped(SnapshotId(*pairs(p[0])[0]), int(o["start"])),
    "disconnected": lambda s, p, o: events.Disconnected(int(p[0])),
    "vote-unknown-to": lambda s, p, o: events.Unsupported(s.number(p[0], "VoteRequest")),
    "asked-vote": _vote,
    "asked-fetch": _fetch,
    "asked-snapshot": _fetch_snapshot,
    "asked-begin": _begin,
    "asked-end": _end,
    "vote-answer": _answered("VoteRequest", _vote_reply),
    "fetch-answer": _answered("FetchRequest", _fetch_reply),
    "snapshot-answer": _answered("FetchSnapshotRequest", _chunk),
    "begin-answer": _answered(
        "BeginQuorumEpochRequest", lambda p, o: m.BeginQuorumEpochReply(_error(o), int(o["epoch"]), _leader(o))
    ),
    "end-answer": _answered(
        "EndQuorumEpochRequest", lambda p, o: m.EndQuorumEpochReply(_error(o), int(o["epoch"]), _leader(o))
    ),
}


UNSAID = (None, (), b"", -1, m.NO_HIGH_WATERMARK, "cluster")


def show(value: Any) -> str:
    """A named tuple without its unset fields."""
    if isinstance(value, ReplicaKey):
        directory = "" if value.directory == ZERO_UUID else "/" + chr(value.directory[0])
        return f"{value.id}{directory}"
    if hasattr(value, "_fields"):
        shown = [
            f"{name}={show(field)}"
            for name, field in zip(value._fields, value, strict=True)
            if name in ("granted", "leader_id") or (field is not False and field not in UNSAID)
        ]
        return f"{type(value).__name__}({' '.join(shown)})"
    if isinstance(value, tuple | list):
        return "[" + " ".join(show(part) for part in value) + "]"
    if isinstance(value, bytes):
        return value.decode() if len(value) < 20 else f"{len(value)} bytes"
    return str(value)


def retell(text: str) -> str:
    """The script with the effects of the present code."""
    story = Story()
    reported = []
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        reported.append(line)
        if line.startswith("> "):
            reported += ["    " + work for work in story.tell(line[2:])]
        elif line.startswith("@ "):
            story.now = int(line[2:])
        elif ": " in line and not line.startswith("#"):
            name, _, value = line.partition(": ")
            story.settings[name] = value
    return "\n".join(reported) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_replays_to_its_recorded_end(path: Path) -> None:
    text = path.read_text()
    reported = retell(text)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(reported)
    assert reported == text


def test_there_are_enough_stories() -> None:
    assert len(STORIES) >= 8
