"""A release names one version everywhere, and its notes come from the changelog."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tools.release.versions import PLACES, ROOT, changes, state, stated, version


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that contain the version, and a changelog."""
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n## [9.8.7] - 2030-01-31\n\n### Added\n\n- A thing.\n\n"
        "## [9.8.6] - 2030-01-01\n"
    )
    return tmp_path


def test_all_files_state_one_version() -> None:
    assert version() == stated()["pyproject.toml"][0]


def test_a_new_version_reaches_every_place(copy: Path) -> None:
    before = stated(copy)
    state("9.8.7rc1", copy)
    assert version(copy) == "9.8.7rc1"
    assert {name: len(found) for name, found in stated(copy).items()} == {
        name: len(one) for name, one in before.items()
    }


def test_files_that_disagree_are_named(copy: Path) -> None:
    chart = copy / "charts/kraftcluster/Chart.yaml"
    chart.write_text(chart.read_text().replace(f"appVersion: {version()}", "appVersion: 9.9.9"))
    with pytest.raises(ValueError, match=r"charts/kraftcluster/Chart\.yaml: .*9\.9\.9"):
        version(copy)


@pytest.mark.parametrize("text", ["1.2", "v1.2.3", "1.2.3-rc1", "1.2.3\n"])
def test_a_text_that_is_not_a_version_is_refused(copy: Path, text: str) -> None:
    before = version(copy)
    with pytest.raises(ValueError, match="is not a version"):
        state(text, copy)
    assert version(copy) == before


def test_notes_are_the_dated_section(copy: Path) -> None:
    assert changes("9.8.7", copy) == "### Added\n\n- A thing."
    assert changes("1.0.0", copy) == ""


def test_the_operators_chart_names_images_of_the_new_version(copy: Path) -> None:
    state("9.8.7", copy)
    values = (copy / "charts/kraftcluster-operator/values.yaml").read_text()
    assert re.findall(r"^(\w*[iI]mage): \S+:9\.8\.7$", values, re.MULTILINE) == ["image", "nodeImage", "pipelineImage"]


def test_labels_of_all_images_state_the_new_version(copy: Path) -> None:
    """They kept the old version: `set` did not know the Dockerfile."""
    state("9.8.7", copy)
    assert (copy / "Dockerfile").read_text().count('org.opencontainers.image.version="9.8.7"') == 3


def test_a_release_candidate_is_semver_in_charts_only(copy: Path) -> None:
    """Helm refuses a chart with the version 9.8.7rc1."""
    state("9.8.7rc1", copy)
    for name in ("kraftcluster", "kraftcluster-operator"):
        chart = (copy / f"charts/{name}/Chart.yaml").read_text()
        assert "\nversion: 9.8.7-rc1\nappVersion: 9.8.7-rc1\n" in chart
    assert ":9.8.7rc1\n" in (copy / "charts/kraftcluster-operator/values.yaml").read_text()
    assert 'version = "9.8.7rc1"' in (copy / "pyproject.toml").read_text()
