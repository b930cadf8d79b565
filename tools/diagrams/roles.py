"""The roles of a replica and their transitions, drawn from `raft.roles.states.TRANSITIONS`."""

from __future__ import annotations

import math
from typing import Final

from kraft_node.raft.roles.states import TRANSITIONS, Role
from tools.diagrams.draw import Box, Picture

RING: Final = (Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER, Role.RESIGNED, Role.FOLLOWER)
"""Clockwise, from the left."""
WIDTH: Final = 980
CENTRE: Final = (490, 250)
RADII: Final = (320, 190)
BOX: Final = (130, 46)
ROW: Final = 20


def roles() -> str:
    """The diagram with a numbered list of reasons. Raises ValueError if the table has a role that the diagram lacks."""
    edges = [(old, new, why) for old, after in TRANSITIONS.items() for new, why in after.items()]
    unknown = {role for old, new, _ in edges for role in (old, new) if role is not None} - set(RING)
    if unknown:
        raise ValueError(f"tools/diagrams/roles.py: no place for {sorted(role.value for role in unknown)}")
    top = CENTRE[1] + RADII[1] + 70
    picture = Picture(WIDTH, top + ROW * ((len(edges) + 1) // 2) + 16, "Roles of a replica")
    boxes = {role: _place(picture, number, role) for number, role in enumerate(RING)}
    for number, (old, new, why) in enumerate(edges, 1):
        if old is None:
            _start(picture, boxes[new], str(number))
        elif old is new:
            _loop(picture, boxes[old], str(number))
        else:
            picture.arrow(boxes[old], boxes[new], str(number), shift=9, at=0.38)
        column, row = divmod(number - 1, (len(edges) + 1) // 2)
        words = f"{number}  {_name(old)} → {_name(new)}: {why}"
        picture.text(24 + column * 440, top + ROW * row, words, "small", "start")
    return picture.svg()


def _name(role: Role | None) -> str:
    return "start" if role is None else role.value


def _place(picture: Picture, number: int, role: Role) -> Box:
    angle = math.pi + number * 2 * math.pi / len(RING)
    x, y = CENTRE[0] + RADII[0] * math.cos(angle), CENTRE[1] + RADII[1] * math.sin(angle)
    kind = {Role.LEADER: "good", Role.FOLLOWER: "cool"}.get(role, "plain")
    return picture.box(x - BOX[0] / 2, y - BOX[1] / 2, *BOX, role.value.capitalize(), kind=kind)


def _outwards(box: Box) -> int:
    return -1 if box.center[1] <= CENTRE[1] else 1


def _start(picture: Picture, box: Box, label: str) -> None:
    side = _outwards(box)
    x, y = box.x + 22, box.center[1] + side * box.height / 2
    picture.raw(f'<circle class="tip" cx="{x:g}" cy="{y + side * 30:g}" r="5"/>')
    picture.line([(x, y + side * 26), (x, y)])
    picture.text(x - 14, y + side * 22 + 4, label, "label")


def _loop(picture: Picture, box: Box, label: str) -> None:
    if abs(box.center[1] - CENTRE[1]) < 1:
        x, y, bend = box.x, box.center[1], box.x - 36
        picture.raw(
            f'<path class="arrow" d="M{x:g} {y - 14:g} C{bend:g} {y - 14:g} {bend:g} {y + 14:g} {x:g} {y + 14:g}" '
            'marker-end="url(#tip)"/>'
        )
        picture.text(bend, y + 4, label, "label")
        return
    side = _outwards(box)
    x, y = box.x + box.width - 45, box.center[1] + side * box.height / 2
    bend = y + side * 34
    picture.raw(
        f'<path class="arrow" d="M{x:g} {y:g} C{x:g} {bend:g} {x + 32:g} {bend:g} {x + 32:g} {y:g}" '
        'marker-end="url(#tip)"/>'
    )
    picture.text(x + 16, bend, label, "label")
