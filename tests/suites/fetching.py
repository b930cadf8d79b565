"""Sources from the registries of Go, npm and Rust, copied to a folder in which they can be built."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

GO_ENV = {**os.environ, "GOFLAGS": "-buildvcs=false"}


def go_module(module: str, version: str, folder: Path) -> Path:
    """A writable copy of a Go module. Raises CalledProcessError, FileNotFoundError without Go."""
    (folder / "go.mod").write_text("module suites\n")
    command = ["go", "mod", "download", "-json", f"{module}@{version}"]
    done = subprocess.run(command, cwd=folder, env=GO_ENV, capture_output=True, text=True, check=True)
    copy = folder / module.rsplit("/", 1)[-1]
    shutil.copytree(json.loads(done.stdout)["Dir"], copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    return copy


def go_test(source: Path, program: Path, *options: str) -> None:
    """Build the test program of a package."""
    subprocess.run(["go", "test", *options, "-c", "-o", str(program), "."], cwd=source, env=GO_ENV, check=True)


def go_program(package: str, folder: Path) -> None:
    """Build a program, such as `host/module/cmd/name@version`, into `folder`."""
    subprocess.run(["go", "install", package], env={**GO_ENV, "GOBIN": str(folder)}, cwd=folder, check=True)


def npm_package(name: str, version: str, folder: Path) -> Path:
    """The unpacked package. Raises CalledProcessError, FileNotFoundError without npm."""
    command = ["npm", "pack", "--silent", f"{name}@{version}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    with tarfile.open(folder / done.stdout.split()[-1]) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


def crate(name: str, version: str, folder: Path) -> Path:
    """A copy of a crate. Raises CalledProcessError, FileNotFoundError without Cargo."""
    holder = folder / "holder"
    (holder / "src").mkdir(parents=True)
    (holder / "src" / "lib.rs").touch()
    (holder / "Cargo.toml").write_text(
        f'[package]\nname = "holder"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n{name} = "={version}"\n'
    )
    command = ["cargo", "metadata", "--format-version=1", "--quiet"]
    done = subprocess.run(command, cwd=holder, capture_output=True, text=True, check=True)
    manifest = next(one["manifest_path"] for one in json.loads(done.stdout)["packages"] if one["name"] == name)
    return Path(shutil.copytree(Path(manifest).parent, folder / name))
