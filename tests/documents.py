"""Documents of resources, as users write them in YAML."""

from __future__ import annotations

from typing import Any

from kraft_pipeline.tables.specs import table_spec


def table_document(*, name: str = "orders", **sections: Any) -> dict[str, Any]:
    """A KafkaTable of the topic `t`. `sections` replace those of its specification, or are added to them."""
    spec = {"bootstrapServers": "a:1", "topics": {"names": ["t"]}, "table": {"path": "/t"}, **sections}
    return {"apiVersion": table_spec.API_VERSION, "kind": table_spec.KIND, "metadata": {"name": name}, "spec": spec}
