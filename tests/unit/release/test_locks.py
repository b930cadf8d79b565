"""The pipeline's image has the packages for each format of values."""

from __future__ import annotations

import re

import pytest

from kraft_pipeline.tables.values import PACKAGES
from tools import locks

DISTRIBUTIONS = {"google.protobuf": "protobuf"}


@pytest.mark.parametrize(("extra", "package"), sorted(PACKAGES.items()))
def test_the_pipeline_image_has_the_packages_of_every_format(extra: str, package: str) -> None:
    """Before, Protobuf and JSON Schema needed a custom image."""
    assert extra in locks.PIPELINE
    locked = re.findall(r"^([a-z0-9-]+)==", (locks.LOCKS / "pipeline.txt").read_text(), re.MULTILINE)
    assert DISTRIBUTIONS.get(package, package) in locked
