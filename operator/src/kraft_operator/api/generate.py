"""Write the CustomResourceDefinitions: `python -m kraft_operator.api.generate [FOLDER]…`, else into the repository."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from kraft_operator.api.crd import cluster_crd, topic_crd

FOLDERS: Final = ("deploy/crds", "charts/kraftcluster-operator/crds")
HEADER: Final = "# Written by `python -m kraft_operator.api.generate`; do not edit.\n"


def files() -> dict[str, str]:
    """Name and text of each file."""
    crds = (cluster_crd(), topic_crd())
    return {
        f"{crd['spec']['names']['plural']}.yaml": HEADER + yaml.safe_dump(crd, sort_keys=False, width=118)
        for crd in crds
    }


def main(folders: Sequence[str]) -> None:
    for folder in folders or FOLDERS:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, text in files().items():
            (Path(folder) / name).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
