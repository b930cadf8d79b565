"""The content of the pictures."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from tools.diagrams.draw import Box, Picture
from tools.diagrams.roles import roles


def overview() -> str:
    """The three products and their surroundings."""
    picture = Picture(920, 420, "kraftcluster: clients, brokers, controllers, operator and pipeline")
    operator = picture.box(280, 20, 340, 62, "operator", ["one safe step at a time; on a laptop: kraftcluster"], "warm")
    cluster = picture.group(240, 130, 420, 270, "cluster")
    controllers = picture.group(260, 166, 380, 90, "controllers: metadata, a Raft quorum")
    brokers = picture.group(260, 296, 380, 90, "brokers: topics, replicated")
    for number, name in enumerate(("1", "2", "3")):
        picture.box(280 + number * 118, 198, 104, 44, name, kind="cool")
    for number, name in enumerate(("101", "102", "103")):
        picture.box(280 + number * 118, 328, 104, 44, name, kind="cool")
    clients = picture.box(20, 306, 150, 76, "Kafka clients", ["Java, librdkafka, …", "Kafka's own tools"])
    apache = picture.box(20, 176, 150, 76, "Apache Kafka", ["its nodes may be", "members as well"])
    pipeline = picture.box(740, 296, 160, 62, "pipeline", ["with or without Spark"], "warm")
    tables = picture.box(740, 176, 160, 62, "tables", ["Delta, Iceberg, Parquet"], "good")
    picture.arrow(operator, cluster)
    picture.arrow(brokers, controllers, "metadata log", both=True)
    picture.line([(170, 344), (260, 344)], both=True)
    picture.line([(170, 214), (240, 214)], both=True)
    picture.line([(660, 327), (740, 327)], both=True)
    picture.arrow(pipeline, tables)
    del clients, apache
    return picture.svg()


LAYERS: Final = (
    ("testing", "the simulated world", "warm"),
    ("cli", "kafka-server-start, kafka-storage, …", "plain"),
    ("runtime", "event loop, sockets, files, threads: the only place that touches them", "good"),
    ("server", "connections, listeners, metrics, the node", "cool"),
    ("broker", "the APIs, a handler file each; groups", "cool"),
    ("controller · partition · security", "requests to records; replicas; ACLs", "cool"),
    ("metadata · log", "the image of the cluster; segments, indexes, recovery", "cool"),
    ("raft", "who leads, what is committed", "cool"),
    ("base", "configuration keys, Env", "plain"),
    ("kraft_protocol", "messages, frames, record batches, ids, errors", "cool"),
)


def layers() -> str:
    """The node's packages; each imports only packages below it."""
    picture = Picture(800, 40 + 50 * len(LAYERS), "Layers of the node")
    for number, (name, meaning, kind) in enumerate(LAYERS):
        picture.box(70, 20 + 50 * number, 710, 42, "", kind=kind)
        picture.text(86, 46 + 50 * number, name, "title", "start")
        picture.text(340, 46 + 50 * number, meaning, "small", "start")
    picture.line([(38, 30), (38, 10 + 50 * len(LAYERS))])
    picture.raw(
        f'<text class="small" transform="translate(26 {20 + 25 * len(LAYERS)}) rotate(-90)" '
        'text-anchor="middle">imports</text>'
    )
    return picture.svg()


def _row(picture: Picture, y: float, steps: tuple[tuple[str, tuple[str, ...], str], ...]) -> list[Box]:
    """Boxes from left to right with arrows between them."""
    boxes = [picture.box(20 + 172 * n, y, 148, 84, title, lines, kind) for n, (title, lines, kind) in enumerate(steps)]
    for left, right in pairwise(boxes):
        picture.arrow(left, right)
    return boxes


def request() -> str:
    """The path of a Produce and of a Fetch request."""
    picture = Picture(876, 352, "The way of a request")
    picture.text(20, 30, "Produce", "title", "start")
    _row(
        picture,
        44,
        (
            ("runtime.net", ("fills the receive", "buffer"), "good"),
            ("connection", ("cuts frames,", "decodes in place"), "cool"),
            ("handler", ("checks header, CRC,", "sequence; offsets"), "cool"),
            ("log", ("one write to the", "page cache"), "cool"),
            ("answering", ("in order of the", "requests, one write"), "cool"),
        ),
    )
    picture.text(20, 186, "Fetch", "title", "start")
    boxes = _row(
        picture,
        200,
        (
            ("connection", ("decodes, finds", "the handler"), "cool"),
            ("handler", ("offsets, isolation,", "waiting, sessions"), "cool"),
            ("log", ("a slice of the", "segment file"), "cool"),
            ("answering", ("header, then", "the slice"), "cool"),
            ("runtime.net", ("sendfile to", "the socket"), "good"),
        ),
    )
    lane = picture.box(364, 310, 148, 30, "", kind="warm")
    picture.text(438, 330, "cold data: a lane reads", "small")
    picture.arrow(boxes[2], lane, both=True)
    return picture.svg()


def metadata() -> str:
    """The path of a metadata change, from the request to the brokers."""
    picture = Picture(876, 300, "How a change of metadata becomes visible")
    first = _row(
        picture,
        30,
        (
            ("request", ("CreateTopics,", "a heartbeat, …"), "plain"),
            ("controller", ("plans records against", "image and overlay"), "cool"),
            ("prepare", ("offsets, or refused:", "not the leader"), "cool"),
            ("overlay", ("replays, or the plan", "is refused"), "cool"),
            ("schedule", ("hands them to", "the Raft log"), "cool"),
        ),
    )
    second = [
        picture.box(708, 180, 148, 84, "replicate", ["voters fetch", "and fsync"], "good"),
        picture.box(536, 180, 148, 84, "commit", ["high watermark", "moves"], "good"),
        picture.box(364, 180, 148, 84, "image", ["replayed in place,", "on every node"], "cool"),
        picture.box(192, 180, 148, 84, "delta", ["tells the broker", "what changed"], "cool"),
        picture.box(20, 180, 148, 84, "answer", ["waits for the commit", "of its offsets"], "plain"),
    ]
    picture.arrow(first[-1], second[0])
    for left, right in pairwise(second[:-1]):
        picture.arrow(left, right)
    picture.line([(610, 264), (610, 286), (94, 286), (94, 264)])
    return picture.svg()


def operator_pass() -> str:
    """One pass of the operator, including the second check."""
    picture = Picture(876, 300, "A pass of the operator")
    boxes = _row(
        picture,
        40,
        (
            ("wake", ("event, watch,", "resync"), "plain"),
            ("observe", ("objects, quorum,", "metadata; ages"), "cool"),
            ("plan", ("pure function; at most", "one disrupting step"), "cool"),
            ("look again", ("fresh views; same", "answer, or nothing"), "warm"),
            ("act", ("within 5 s of the", "oldest view"), "good"),
        ),
    )
    tell = picture.box(708, 186, 148, 84, "report", ["conditions, nodes,", "the plan"], "cool")
    record = picture.box(364, 186, 148, 84, "record", ["decisions, written", "before the act"], "plain")
    picture.arrow(boxes[4], tell)
    picture.arrow(boxes[2], record, both=True)
    picture.line([(708, 228), (610, 228), (610, 284), (94, 284), (94, 124)])
    picture.text(228, 276, "a wait: look again later", "small")
    return picture.svg()


def simulation() -> str:
    """The decisions of a seed, the code that runs, and the laws that judge it."""
    picture = Picture(892, 330, "The simulation")
    seed = picture.box(20, 130, 120, 64, "seed", ["one number"], "warm")
    world = picture.group(190, 20, 220, 290, "the simulated world")
    for number, (name, words) in enumerate(
        (
            ("clock", "drifts, jumps"),
            ("disk", "tears, rots, fills, hangs"),
            ("network", "cuts, delays"),
            ("processes", "killed, paused"),
        )
    ):
        picture.box(206, 54 + 62 * number, 188, 50, name, [words])
    nodes = picture.group(460, 60, 200, 200, "unchanged nodes")
    for number in range(3):
        picture.box(490, 96 + 52 * number, 140, 40, f"node {number + 1}", kind="cool")
    workload = picture.box(712, 40, 160, 76, "clients", ["producers, groups,", "administrators"])
    laws = picture.box(712, 204, 160, 76, "laws", ["lost, duplicate, isr,", "divergence, fsync, …"], "good")
    picture.arrow(seed, world)
    picture.arrow(world, nodes, both=True)
    picture.arrow(workload, nodes, both=True)
    picture.arrow(nodes, laws)
    return picture.svg()


PICTURES: Final[dict[str, Callable[[], str]]] = {
    "overview.svg": overview,
    "layers.svg": layers,
    "request.svg": request,
    "metadata.svg": metadata,
    "raft-roles.svg": roles,
    "operator-pass.svg": operator_pass,
    "simulation.svg": simulation,
}
"""Name in docs/images -> drawing function."""
