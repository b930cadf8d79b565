"""Parsing of a file with a `KRaftCluster`, its `KRaftTopic`s and `KRaftUser`s, with all checks of the API server.

The checks are the schema and all rules, including rules about changes. The supervisor and the command line call it. It
does no I/O but `read`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from pydantic import ValidationError

from kraft_local.cel import CelError, compiled
from kraft_local.folder import Requests
from kraft_operator.api.base import GROUP, VERSION, rules_of
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.crd import CLUSTER_RULES, cluster_crd, topic_crd, user_crd
from kraft_operator.api.problems import problems as problems_of
from kraft_operator.api.topic import KRaftTopicSpec
from kraft_operator.api.user import KRaftUserSpec
from kraft_operator.api.versions import RENAMED, ConversionError, converted

KIND: Final = "KRaftCluster"
TOPIC: Final = "KRaftTopic"
USER: Final = "KRaftUser"
OBJECT_NAME: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
OBJECT_NAME_CHARS_MAX: Final = 253
"""The limit for any resource. The rules of a cluster are stricter."""
API_VERSION: Final = f"{GROUP}/{VERSION}"


class BadResourceError(Exception):
    """The file is invalid. The message has one line for each problem, with its place."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))


class Resource(NamedTuple):
    """The parsed content of a file."""

    name: str
    namespace: str
    annotations: dict[str, str]
    spec: KRaftClusterSpec
    topics: dict[str, dict[str, Any]] = {}
    """The specifications of its KRaftTopics, by name."""
    users: dict[str, dict[str, Any]] = {}
    """Its KRaftUsers by name: `spec` and `annotations`."""
    other_kinds: tuple[str, ...] = ()
    """Kinds of other resources in the file, which only the operator on Kubernetes handles."""


def read(path: Path) -> str:
    """Read a file. Raises BadResourceError."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadResourceError(f"{path}: {getattr(error, 'strerror', None) or 'not a text file'}") from None


def parsed(
    text: str,
    where: str,
    before: Mapping[str, Any] | None = None,
    topics_before: Mapping[str, Mapping[str, Any]] | None = None,
    users_before: Mapping[str, Mapping[str, Any]] | None = None,
    cluster_id: str | None = None,
    mode: str = "",
) -> Resource:
    """Parse the only `KRaftCluster` of a file named `where`, with its topics. Raises BadResourceError.

    `before` are the former `values` of the cluster, if any, `topics_before` and `users_before` those of its topics and
    users. `cluster_id` is the assigned id of the cluster, `mode` its security mode; empty before it has begun.
    """
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadResourceError(f"{where}: {yaml_problem(error)}") from None
    if not all(isinstance(document, dict) for document in documents):
        raise BadResourceError(
            f"{where}: not a resource: a mapping with apiVersion, kind, metadata and spec is expected"
        )
    found = [document for document in documents if document.get("kind") == KIND]
    if len(found) != 1:
        kinds = ", ".join(str(document.get("kind", "no kind")) for document in documents) or "nothing"
        raise BadResourceError(f"{where}: one {KIND} is expected, {len(found)} found (there is: {kinds})")
    others = tuple(sorted({str(document.get("kind")) for document in documents} - {KIND, TOPIC, USER}))
    cluster = _resource(found[0], where, before, cluster_id, mode)
    topics = {}
    for document in documents:
        if document.get("kind") == TOPIC:
            name, spec = _topic(document, where, cluster.name, topics_before or {})
            if name in topics:
                raise BadResourceError(f"{where}: two {TOPIC}s are named {name}")
            topics[name] = spec
    users = _users(documents, where, cluster.name, users_before or {})
    return cluster._replace(topics=topics, users=users, other_kinds=others)


def _users(
    documents: list[dict[str, Any]], where: str, cluster: str, before: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    users: dict[str, dict[str, Any]] = {}
    for document in documents:
        if document.get("kind") == USER:
            name, user = parse_user(document, where, cluster, before)
            if name in users:
                raise BadResourceError(f"{where}: two {USER}s are named {name}")
            users[name] = user
    return users


def parse_user(
    document: dict[str, Any], where: str, cluster: str, before: Mapping[str, Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """Name of a KRaftUser, and its `spec` and `annotations`. Raises BadResourceError."""
    name, metadata = _metadata(document, where)
    former = before.get(name, {}).get("spec")
    found = _valid_spec(document, f"{where}: {USER} {name}", KRaftUserSpec, _USER_SCHEMA, cluster, former)
    return name, {"spec": found, "annotations": _annotations(metadata)}


def yaml_problem(error: yaml.YAMLError | ValueError | RecursionError) -> str:
    """Why a document cannot be read. PyYAML raises ValueError for a date that does not exist."""
    if isinstance(error, RecursionError):
        return "the document is nested too deep"
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"{problem}, in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else str(problem)


def _metadata(document: dict[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    """Name and metadata of a KRaftCluster or KRaftTopic; converts the document to the present version."""
    try:
        renamed = {} if document.get("apiVersion") == API_VERSION else RENAMED.get(str(document.get("kind")), {})
        spec = document.get("spec")
        older = sorted(spec.keys() & renamed.keys()) if isinstance(spec, dict) else ()
        document.update(converted(document, VERSION))
    except ConversionError:
        text = f"{API_VERSION} is expected, not {document.get('apiVersion')!r}"
        raise BadResourceError(f"{where}: apiVersion: {text}") from None
    if older:
        raise BadResourceError(f"{where}: spec.{older[0]}: unknown field; this version has {renamed[older[0]]}")
    unknown = sorted(document.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}, key=str)
    if unknown:
        raise BadResourceError(f"{where}: {unknown[0]}: unknown field")
    metadata = document.get("metadata") or {}
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not re.fullmatch(OBJECT_NAME, name) or len(name) > OBJECT_NAME_CHARS_MAX:
        text = f"lower-case letters, digits, hyphens and dots, at most {OBJECT_NAME_CHARS_MAX}"
        raise BadResourceError(f"{where}: metadata.name: {text}, not {name!r}")
    if not isinstance(metadata.get("annotations") or {}, dict):
        raise BadResourceError(f"{where}: metadata.annotations: a mapping is expected")
    return name, metadata


def _topic(
    document: dict[str, Any], where: str, cluster: str, before: Mapping[str, Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """Name and specification of a KRaftTopic."""
    name, _ = _metadata(document, where)
    at = f"{where}: {TOPIC} {name}"
    return name, _valid_spec(document, at, KRaftTopicSpec, _TOPIC_SCHEMA, cluster, before.get(name))


def _valid_spec(
    document: dict[str, Any],
    at: str,
    model: type[KRaftTopicSpec] | type[KRaftUserSpec],
    schema: dict[str, Any],
    cluster: str,
    before: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The specification of a topic or a user; `before` is its former one. Raises BadResourceError, naming it `at`."""
    try:
        spec = model.model_validate(document.get("spec") or {})
    except ValidationError as error:
        raise BadResourceError(*(f"{at}: {line}" for line in problems_of(error))) from None
    if spec.cluster != cluster:
        raise BadResourceError(f"{at}: spec.cluster: the cluster of this file is {cluster}, not {spec.cluster}")
    found = spec.model_dump(by_alias=True, exclude_none=True)
    problems = list(_broken(schema, found, before, "spec"))
    if problems:
        raise BadResourceError(*(f"{at}: {line}" for line in problems))
    return found


def _resource(
    document: dict[str, Any], where: str, before: Mapping[str, Any] | None, cluster_id: str | None, mode: str
) -> Resource:
    name, metadata = _metadata(document, where)
    try:
        spec = KRaftClusterSpec.model_validate(document.get("spec") or {})
    except ValidationError as error:
        raise BadResourceError(*(f"{where}: {line}" for line in problems_of(error))) from None
    found = values(spec)
    status = {} if cluster_id is None else {"clusterId": cluster_id}
    status |= {"security": mode} if mode else {}
    new = {"metadata": {"name": name}, "spec": found, "status": status}
    problems = [*_broken(_ROOT, new, None if before is None else {**new, "spec": before}, name)]
    problems += broken_rules(found, before)
    if problems:
        raise BadResourceError(*(f"{where}: {line}" for line in problems))
    return Resource(name, str(metadata.get("namespace") or "default"), _annotations(metadata), spec)


def _annotations(metadata: dict[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in (metadata.get("annotations") or {}).items()}


def values(spec: KRaftClusterSpec) -> dict[str, Any]:
    """The specification as the API server stores it: with all defaults, without omitted fields."""
    return spec.model_dump(by_alias=True, exclude_none=True)


def with_requests(spec: KRaftClusterSpec, requests: Requests) -> KRaftClusterSpec:
    """The specification of the file, with the requests of the command line."""
    found: dict[str, Any] = values(spec)
    names = {item["name"] for item in found["replacements"]}
    found["replacements"] += [item for item in requests.replacements if item["name"] not in names]
    found["paused"] = found["paused"] or requests.paused
    found["hibernated"] = found["hibernated"] or requests.hibernated
    return KRaftClusterSpec.model_validate(found)


# Rules


def _schema_of(crd: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


_SCHEMA: Final = _schema_of(cluster_crd())
_ROOT: Final = rules_of(CLUSTER_RULES)
_TOPIC_SCHEMA: Final = _schema_of(topic_crd())
_USER_SCHEMA: Final = _schema_of(user_crd())


def broken_rules(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[str]:
    """The messages of violated rules; with `old`, rules about changes are checked, too."""
    return list(_broken(_SCHEMA, new, old, "spec"))


def _broken(schema: Mapping[str, Any], new: Any, old: Any, path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if old is None and "oldSelf" in rule["rule"]:
            continue
        try:
            holds = compiled(rule["rule"])({"self": new, "oldSelf": old})
        except (CelError, KeyError) as error:
            holds = False
            yield f"{path}: {rule['rule']}: {error}"
            continue
        if not holds:
            yield f"{path}: {rule['message']}"
    if isinstance(new, Mapping):
        for key, inner in schema.get("properties", {}).items():
            if key in new:
                before = old.get(key) if isinstance(old, Mapping) else None
                yield from _broken(inner, new[key], before, f"{path}.{key}")
    elif isinstance(new, list):
        keys = schema.get("x-kubernetes-list-map-keys", ())
        former = {tuple(item.get(k) for k in keys): item for item in old or ()} if keys else {}
        for number, item in enumerate(new):
            before = former.get(tuple(item.get(k) for k in keys)) if keys else None
            name = f"{path}[{item['name'] if keys == ['name'] else number}]"
            yield from _broken(schema["items"], item, before, name)
