"""The command line of a release."""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.manifests import helm
from tools.release.versions import ROOT, changes, state, version

OUT: Final = ROOT / "build" / "release"
IMAGES: Final = {"node": "kraftcluster", "operator": "kraft-operator", "pipeline": "kraft-pipeline"}
"""Target of the Dockerfile, which is also the name of its lock file -> name of the image."""
CHARTS: Final = ("kraftcluster-operator", "kraftcluster")


def _run(*command: str | Path) -> None:
    print("$", *command, flush=True)
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True)


def check() -> None:
    """Raise ValueError unless this tree can be released."""
    new = version()
    if not changes(new):
        raise ValueError(f"CHANGELOG.md has no section '## [{new}] - DATE': move the entries of Unreleased there")
    print(f"{new}: all files agree, the changelog has it")


def notes() -> None:
    """Print the changelog's section of this version."""
    print(changes(version()))


def wheel() -> None:
    """Wheel and source archive, and what PyPI would refuse about them."""
    _run(sys.executable, "-m", "build", "--outdir", OUT, ".")
    _run(sys.executable, "-m", "twine", "check", "--strict", *OUT.glob("*.whl"), *OUT.glob("*.tar.gz"))


def charts() -> None:
    """Both charts. Raises FileNotFoundError without Helm."""
    program = helm()
    if program is None:
        raise FileNotFoundError("helm is neither on the PATH nor in the lab")
    for name in CHARTS:
        _run(program, "lint", "--quiet", ROOT / "charts" / name)
        _run(program, "package", "--destination", OUT, ROOT / "charts" / name)


def sbom() -> None:
    """What each image is made of, from its lock file: names, versions, hashes."""
    for target, image in IMAGES.items():
        _run(
            *(sys.executable, "-m", "cyclonedx_py", "requirements", f"deploy/locks/{target}.txt"),
            *("--pyproject", "pyproject.toml", "--output-reproducible", "--output-format", "JSON"),
            *("--output-file", OUT / f"{image}-{version()}.cdx.json"),
        )


def images() -> None:
    """The three images, tagged with the version. The variable BASE names another base image."""
    base = os.environ.get("BASE", "")
    given = ("--build-arg", f"BASE={base}") if base else ()
    for target, image in IMAGES.items():
        _run("docker", "build", *given, "--target", target, "--tag", f"{image}:{version()}", ".")


def sums() -> None:
    """`SHA256SUMS` of every file in `build/release`."""
    files = sorted(path for path in OUT.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (OUT / "SHA256SUMS").write_text("".join(lines))
    print("".join(lines), end="")


STEPS: Final[dict[str, Callable[[], None]]] = {
    step.__name__: step for step in (check, notes, wheel, charts, sbom, images, sums)
}


def main() -> int:
    """Run one step. Returns 1 after an expected failure, with its reason on standard error; else 0."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="A release, step by step.")
    commands = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    for name, step in STEPS.items():
        commands.add_parser(name, help=(step.__doc__ or "").partition(".")[0])
    commands.add_parser("set", help="State VERSION everywhere").add_argument("version")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    try:
        if options.step == "set":
            state(options.version)
            print("now run `python -m tools.manifests`: the plain manifests name the version, too")
        else:
            STEPS[options.step]()
    except (ValueError, OSError, subprocess.CalledProcessError) as e:
        print(f"release: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
