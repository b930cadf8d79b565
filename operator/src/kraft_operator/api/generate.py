"""Write what follows from the models: `python -m kraft_operator.api.generate [ROOT]`.

These are the CustomResourceDefinitions, beside the plain manifests and in the operator's chart, and the schema of the
values of the cluster's chart. The values are the specification with pools, listeners and volumes by name.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from kraft_operator.api.base import CLUSTER_NAME, CLUSTER_NAME_CHARS_MAX, NAME, NAME_CHARS_MAX
from kraft_operator.api.crd import cluster_crd, crds, topic_crd

FOLDERS: Final = ("deploy/crds", "charts/kraftcluster-operator/crds")
VALUES: Final = "charts/kraftcluster/values.schema.json"
HEADER: Final = "# Written by `python -m kraft_operator.api.generate`; do not edit.\n"


def files() -> dict[str, str]:
    """Name and content of each file."""
    return {
        f"{crd['spec']['names']['plural']}.yaml": HEADER + yaml.safe_dump(crd, sort_keys=False, width=118)
        for crd in crds()
    }


def values_schema() -> dict[str, Any]:
    """The schema of the values of `charts/kraftcluster`: the API server's schema without the checks that only it can
    do.
    """
    spec = _plain(cluster_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    topic = _plain(topic_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    values: dict[str, Any] = spec["properties"]
    pool = _named(values["nodePools"])
    pool["properties"]["storage"]["properties"]["volumes"] = _by_name(
        pool["properties"]["storage"]["properties"]["volumes"]
    )
    values["nodePools"] = _by_name(values["nodePools"])
    values["listeners"] = _by_name(values["listeners"])
    del topic["properties"]["cluster"]
    topic["required"] = [key for key in topic.get("required", ()) if key != "cluster"]
    words = {"type": "object", "additionalProperties": {"type": "string"}}
    own = {
        "global": {"type": "object"},
        "name": {"type": "string", "maxLength": CLUSTER_NAME_CHARS_MAX, "pattern": f"^$|{CLUSTER_NAME}"},
        "labels": words,
        "annotations": words,
        "topics": {"type": "object", "additionalProperties": {"anyOf": [topic, {"type": "null"}]}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Written by `python -m kraft_operator.api.generate`; do not edit.",
        "type": "object",
        "additionalProperties": False,
        "required": ["nodePools"],
        "properties": {**own, **values},
    }


def _plain(node: Any) -> Any:
    """A schema without Kubernetes' marks and defaults, which refuses unknown keys."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    free = node.get("x-kubernetes-preserve-unknown-fields", False)
    plain = {key: _plain(value) for key, value in node.items() if not key.startswith("x-kubernetes-")}
    if node.get("x-kubernetes-int-or-string"):
        plain["type"] = ["integer", "string"]
    if isinstance(plain.get("type"), str):
        plain.pop("default", None)
        if plain["type"] == "object" and "properties" in plain and not free:
            plain["additionalProperties"] = False
    return plain


def _named(items: dict[str, Any]) -> dict[str, Any]:
    """The schema of one item of a list by name, without its name."""
    one: dict[str, Any] = items["items"]
    one["properties"].pop("name", None)
    one["required"] = [key for key in one.get("required", ()) if key != "name"]
    return one


def _by_name(items: dict[str, Any]) -> dict[str, Any]:
    """A list of named items as a map; null removes an item of the chart."""
    one = copy.deepcopy(_named(items))
    schema = {
        "description": items.get("description", ""),
        "type": "object",
        "propertyNames": {"pattern": NAME, "maxLength": NAME_CHARS_MAX},
        "additionalProperties": {"anyOf": [one, {"type": "null"}]},
    }
    return {key: value for key, value in schema.items() if value}


def main(roots: Sequence[str]) -> None:
    """Write the files below each of `roots`; below the working directory if `roots` is empty."""
    for root in map(Path, roots or (".",)):
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
            for name, text in files().items():
                (root / folder / name).write_text(text)
        (root / VALUES).parent.mkdir(parents=True, exist_ok=True)
        (root / VALUES).write_text(json.dumps(values_schema(), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
