"""Maintenance windows: whether a window is open, and when this changes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.windows import DAYS, MaintenanceWindow


class WindowState(NamedTuple):
    """Whether a window is open now, and the time at which this changes; None if it never changes."""

    is_open: bool
    changes: datetime | None


def window_problems(spec: KRaftClusterSpec) -> list[str]:
    """Return an error for each time zone that does not exist."""
    lines = []
    for number, window in enumerate(spec.update_strategy.maintenance_windows):
        try:
            ZoneInfo(window.timezone)
        except (KeyError, ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
            where = f"spec.updateStrategy.maintenanceWindows[{number}].timezone"
            text = f"{window.timezone!r} is not a time zone; write a name such as UTC or Europe/Berlin"
            lines.append(f"{where}: {text}")
    return lines


def window_state(windows: Sequence[MaintenanceWindow], now: datetime) -> WindowState:
    """Return whether a window is open at `now`. Without windows, it is always open."""
    if not windows:
        return WindowState(True, None)
    spans = sorted(span for window in windows for span in _spans(window, now))
    until = now
    for begin, end in spans:
        if begin <= until < end:
            until = end
    if until > now:
        return WindowState(True, until)
    return WindowState(False, min((begin for begin, _ in spans if begin > now), default=None))


def _spans(window: MaintenanceWindow, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Windows that began since yesterday or begin within a week, in UTC."""
    zone = ZoneInfo(window.timezone)
    today = now.astimezone(zone).date()
    for offset in range(-2, 9):
        day = today + timedelta(days=offset)
        if window.days and DAYS[day.weekday()] not in window.days:
            continue
        begin, end = (_at(day.isoformat(), text, zone) for text in (window.begin, window.end))
        if window.end <= window.begin:
            end = _at((day + timedelta(days=1)).isoformat(), window.end, zone)
        if end > begin:  # a window inside an hour that a clock change skips does not exist
            yield begin, end


def _at(day: str, time: str, zone: ZoneInfo) -> datetime:
    return datetime.fromisoformat(f"{day}T{time}:00").replace(tzinfo=zone).astimezone(UTC)


def closed_text(windows: Iterable[MaintenanceWindow], now: datetime) -> str:
    """Why nodes do not restart now; empty while a window is open."""
    state = window_state(tuple(windows), now)
    if state.is_open:
        return ""
    when = state.changes.strftime("%Y-%m-%d %H:%M UTC") if state.changes is not None else "never"
    return f"the next maintenance window opens {when}"
