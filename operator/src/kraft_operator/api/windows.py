"""Maintenance windows: when nodes may be restarted for changes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from kraft_operator.api.base import Model, Rule

WINDOWS_MAX: Final = 16
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
Time = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$", max_length=5)]


class MaintenanceWindow(Model):
    """A time on some days of the week. A window that ends before it begins ends on the next day."""

    RULES: ClassVar = (Rule("self.begin != self.end", "a window needs a duration: choose another end"),)
    days: Annotated[
        list[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]],
        Field(
            max_length=7,
            description="days on which the window begins; every day if empty",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = []
    begin: Time
    end: Time
    timezone: Annotated[str, Field(min_length=1, max_length=64, description="for example Europe/Berlin")] = "UTC"
