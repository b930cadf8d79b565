"""Parsing of a file with a `KRaftCluster` and its `KRaftTopic`s, with all checks of the API server.

The checks are the schema and all rules, including rules about changes. The supervisor and the command line call it. It
does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import yaml
from pydantic import ValidationError

from kraft_local.cel import CelError, compiled
from kraft_operator.api.base import GROUP, VERSION, rules_of
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.crd import CLUSTER_RULES, cluster_crd, topic_crd
from kraft_operator.api.problems import problems as problems_of
from kraft_operator.api.topic import KRaftTopicSpec
from kraft_operator.api.versions import RENAMED, ConversionError, converted

KIND: Final = "KRaftCluster"
TOPIC: Final = "KRaftTopic"
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
    other_kinds: tuple[str, ...] = ()
    """Kinds of other resources in the file, which only the operator on Kubernetes handles."""


def parsed(
    text: str,
    where: str,
    before: Mapping[str, Any] | None = None,
    topics_before: Mapping[str, Mapping[str, Any]] | None = None,
    cluster_id: str | None = None,
) -> Resource:
    """Parse the only `KRaftCluster` of a file named `where`, with its topics. Raises BadResourceError.

    `before` are the former `values` of the cluster, if any, and `topics_before` those of its topics. `cluster_id` is
    the assigned id of the cluster.
    """
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise BadResourceError(f"{where}: {_yaml_problem(error)}") from None
    if not all(isinstance(document, dict) for document in documents):
        raise BadResourceError(
            f"{where}: not a resource: a mapping with apiVersion, kind, metadata and spec is expected"
        )
    found = [document for document in documents if document.get("kind") == KIND]
    if len(found) != 1:
        kinds = ", ".join(str(document.get("kind")) for document in documents) or "nothing"
        raise BadResourceError(f"{where}: one {KIND} is expected, {len(found)} found (there is: {kinds})")
    others = tuple(sorted({str(document.get("kind")) for document in documents} - {KIND, TOPIC}))
    cluster = _resource(found[0], where, before, cluster_id)
    topics = {}
    for document in documents:
        if document.get("kind") == TOPIC:
            name, spec = _topic(document, where, cluster.name, topics_before or {})
            if name in topics:
                raise BadResourceError(f"{where}: two {TOPIC}s are named {name}")
            topics[name] = spec
    return cluster._replace(topics=topics, other_kinds=others)


def _yaml_problem(error: yaml.YAMLError) -> str:
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
    unknown = sorted(document.keys() - {"apiVersion", "kind", "metadata", "spec", "status"})
    if unknown:
        raise BadResourceError(f"{where}: {unknown[0]}: unknown field")
    metadata = document.get("metadata") or {}
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not re.fullmatch(OBJECT_NAME, name) or len(name) > OBJECT_NAME_CHARS_MAX:
        text = f"lower-case letters, digits, hyphens and dots, at most {OBJECT_NAME_CHARS_MAX}"
        raise BadResourceError(f"{where}: metadata.name: {text}, not {name!r}")
    return name, metadata


def _topic(
    document: dict[str, Any], where: str, cluster: str, before: Mapping[str, Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """Name and specification of a KRaftTopic."""
    name, _ = _metadata(document, where)
    at = f"{where}: {TOPIC} {name}"
    try:
        spec = KRaftTopicSpec.model_validate(document.get("spec") or {})
    except ValidationError as error:
        raise BadResourceError(*(f"{at}: {line}" for line in problems_of(error))) from None
    if spec.cluster != cluster:
        raise BadResourceError(f"{at}: spec.cluster: the cluster of this file is {cluster}, not {spec.cluster}")
    found = spec.model_dump(by_alias=True, exclude_none=True)
    problems = list(_broken(_TOPIC_SCHEMA, found, before.get(name), "spec"))
    if problems:
        raise BadResourceError(*(f"{at}: {line}" for line in problems))
    return name, found


def _resource(
    document: dict[str, Any], where: str, before: Mapping[str, Any] | None, cluster_id: str | None
) -> Resource:
    name, metadata = _metadata(document, where)
    try:
        spec = KRaftClusterSpec.model_validate(document.get("spec") or {})
    except ValidationError as error:
        raise BadResourceError(*(f"{where}: {line}" for line in problems_of(error))) from None
    found = values(spec)
    status = {} if cluster_id is None else {"clusterId": cluster_id}
    problems = [*_broken(_ROOT, {"metadata": {"name": name}, "spec": found, "status": status}, None, name)]
    problems += broken_rules(found, before)
    if problems:
        raise BadResourceError(*(f"{where}: {line}" for line in problems))
    annotations = {str(key): str(value) for key, value in (metadata.get("annotations") or {}).items()}
    return Resource(name, str(metadata.get("namespace") or "default"), annotations, spec)


def values(spec: KRaftClusterSpec) -> dict[str, Any]:
    """The specification as the API server stores it: with all defaults, without omitted fields."""
    return spec.model_dump(by_alias=True, exclude_none=True)


# Rules


def _schema_of(crd: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


_SCHEMA: Final = _schema_of(cluster_crd())
_ROOT: Final = rules_of(CLUSTER_RULES)
_TOPIC_SCHEMA: Final = _schema_of(topic_crd())


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
        was = {tuple(item.get(k) for k in keys): item for item in old or ()} if keys else {}
        for number, item in enumerate(new):
            before = was.get(tuple(item.get(k) for k in keys)) if keys else None
            name = f"{path}[{item['name'] if keys == ['name'] else number}]"
            yield from _broken(schema["items"], item, before, name)
