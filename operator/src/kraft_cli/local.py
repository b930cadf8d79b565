"""A cluster of local processes as a target: its folder and its supervisor."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from kraft_cli.target import NOT_THERE, WRONG, failure
from kraft_local.folder import Folder
from kraft_local.resource_file import BadResourceError, parsed, read
from kraft_local.supervisor import Supervisor
from kraft_operator.api.base import CLUSTER_NAME

DEFAULT_FILE: Final = "kraftcluster.yaml"
DEFAULT_DATA: Final = ".kraft"
FOLLOW_S: Final = 0.2
USE_S: Final = 1.0
"""Seconds between the two samples of processor times."""


class Silent:
    """An output that shows nothing."""

    def event(self, text: str) -> None:
        """Not shown."""

    def status(self, resource: dict[str, Any]) -> None:
        """Not shown."""


class LocalTarget:
    """The cluster of a folder."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        """The name of the cluster's folder, which is its `metadata.name`."""
        return self.folder.root.name

    def resource(self) -> dict[str, Any]:
        """The resource with the last status of its supervisor. Without a supervisor, the status is computed here."""
        holder = self.folder.lock.holder()
        last_status = self.folder.status()
        if holder is not None and last_status is not None and last_status["local"]["driver"] == holder[0]:
            return last_status
        found = asyncio.run(
            look_once(self.folder, Path(last_status["local"]["file"] if last_status is not None else ""))
        )
        return found if holder is not None else _kept_by_nobody(found)

    def driven(self) -> None:
        """Fail with NOT_THERE unless a supervisor drives the cluster."""
        if self.folder.lock.holder() is None:
            raise failure(NOT_THERE, f"{self.name} does not run: `kraftcluster up` first")

    def annotate(self, values: Mapping[str, str]) -> None:
        """Set annotations in `requests.json`."""
        with self.folder.changing_requests() as requests:
            requests.annotations.update(values)

    def flag(self, name: str, value: bool) -> None:
        """Set a field of the requests. Raises click.ClickException if the file itself sets it."""
        spec = self.folder.memory().accepted or {}
        if not value and spec.get(name):
            raise failure(WRONG, f"the file of {self.name} has spec.{name}: true; change it there")
        with self.folder.changing_requests() as requests:
            setattr(requests, name, value)

    def request_replacement(self, item: Mapping[str, Any]) -> None:
        """Add the request to `requests.json`, which the supervisor reads in each pass."""
        with self.folder.changing_requests() as requests:
            requests.replacements = [*requests.replacements, dict(item)]

    def withdraw_replacement(self, name: str) -> None:
        """Remove a requested replacement from `requests.json`."""
        with self.folder.changing_requests() as requests:
            requests.replacements = [one for one in requests.replacements if one["name"] != name]

    def log(self, node: Mapping[str, Any], lines: int, follow: bool) -> Iterator[str]:
        """The last `lines` lines of a node's log; with `follow`, then new lines without end.

        Fails with NOT_THERE if no log exists.
        """
        path = self.folder.log(node["id"])
        try:
            file = path.open(errors="replace")
        except FileNotFoundError:
            raise failure(NOT_THERE, f"node {node['id']} has no log yet: {path} does not exist") from None
        with file:
            yield from deque(file, maxlen=lines)
            while follow:
                line = file.readline()
                if line:
                    yield line
                else:
                    time.sleep(FOLLOW_S)

    def use(self, nodes: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
        """Rows of node id, roles, share of a processor and resident memory, measured over `USE_S` seconds."""
        pids = {int(node_id): pid for node_id, pid in self.resource()["local"]["pids"].items()}
        before, began = _cpu_s(pids), time.monotonic()
        time.sleep(USE_S)
        after, seconds = _cpu_s(pids), time.monotonic() - began
        rows = []
        for node in nodes:
            cpu, rss = after.get(node["id"], (0.0, 0))
            before_s = before.get(node["id"], (0.0, 0))[0]
            share = f"{100 * (cpu - before_s) / seconds:.0f}%" if node["id"] in after else ""
            memory = f"{rss / 2**20:.0f} MiB" if node["id"] in after else ""
            rows.append((str(node["id"]), ",".join(node["roles"]), share, memory))
        return rows


def _kept_by_nobody(resource: dict[str, Any]) -> dict[str, Any]:
    """The resource with its status, without a plan: nothing is being done."""
    status, local = resource["status"], resource["local"]
    local["driver"] = None
    status.pop("step", None)
    for node in status["nodes"]:
        if str(node["id"]) not in local["pids"]:
            node["state"] = "Stopped"
    for condition in status["conditions"]:
        if condition["type"] == "Progressing":
            condition.update(status="False", reason="KeptByNobody", message="`kraftcluster up` continues")
    return resource


async def look_once(folder: Folder, file: Path, preview: Path | None = None) -> dict[str, Any]:
    """Compute situation and plan; with `preview`, as if the file were in force."""
    looker = Supervisor(folder, file, Silent(), acts=False)
    if preview is not None:
        memory = looker.memory
        resource = parsed(
            read(preview),
            str(preview),
            memory.accepted,
            memory.topics,
            memory.users,
            memory.record.cluster_id,
            looker.mode,
        )
        looker.memory.accepted = resource.spec.model_dump(by_alias=True, exclude_none=True)
        looker.memory.annotations, looker.memory.topics = resource.annotations, resource.topics
        looker.memory.users = resource.users
    async with looker.client:
        return await looker.look()


def find_folder(data: Path | None, file: Path | None, name: str | None) -> Folder:
    """The selected cluster: by name, else the file's, else the only cluster there. Raises click.ClickException."""
    if file is not None:
        name = name or name_of(file)
    base = base_of(data, file)
    if name is not None:
        folder = Folder(base / name)
        if not folder.exists():
            raise failure(NOT_THERE, f"cluster {name} does not exist in {base}: `kraftcluster up` creates it")
        return folder
    there = sorted(path.parent.name for path in base.glob("*/cluster.json"))
    if len(there) != 1:
        what = f"{len(there)} clusters ({', '.join(there)}): name one with --cluster" if there else "no cluster"
        raise failure(WRONG if there else NOT_THERE, f"{base} has {what}")
    return Folder(base / there[0])


def base_of(data: Path | None, file: Path | None) -> Path:
    """The folder of clusters: the given folder, else beside the file, else in the working directory."""
    if data is not None:
        return data.absolute()
    return (file.absolute().parent if file is not None else Path.cwd()) / DEFAULT_DATA


def name_of(file: Path) -> str:
    """`metadata.name` of a file; other fields are checked later. Raises click.ClickException."""
    try:
        for document in yaml.safe_load_all(read(file)):
            if isinstance(document, dict) and document.get("kind") == "KRaftCluster":
                name = document["metadata"]["name"]
                if re.fullmatch(CLUSTER_NAME, name):  # the name becomes a folder
                    return str(name)
                break
        parsed(read(file), str(file))  # raises an error that names the fault
    except BadResourceError as error:
        raise failure(WRONG, str(error)) from None
    except (yaml.YAMLError, ValueError, RecursionError, KeyError, TypeError):
        try:
            parsed(read(file), str(file))
        except BadResourceError as error:
            raise failure(WRONG, str(error)) from None
    raise failure(WRONG, f"{file}: metadata.name is missing")


def _cpu_s(pids: Mapping[int, int]) -> dict[int, tuple[float, int]]:
    """Processor seconds and resident bytes of a process."""
    found = {}
    for node_id, pid in pids.items():
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks, pages = int(words[11]) + int(words[12]), int(words[21])
            found[node_id] = (ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"))
        except (OSError, IndexError):
            asked = ["ps", "-o", "rss=", "-p", str(pid)]
            printed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
            if printed:
                found[node_id] = (0.0, int(printed) * 1024)
    return found
