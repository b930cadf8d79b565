"""Files of Protocol Buffers from a registry: converts their text or descriptor, with all imports, to message types."""

from __future__ import annotations

import base64
import binascii
import importlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kraft_pipeline.tables.formats.registry import Registered

MAIN: Final = "kraft_main.proto"
COMPILE_S: Final = 60.0
KNOWN: Final = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type"),
    "wrappers",
)
"""Files of google/protobuf that every reader has."""
CONFLUENT: Final = {
    "confluent/meta.proto": """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
}
"""Files that a Confluent registry knows without a reference."""


class NoMessageError(Exception):
    """The schema is not a protobuf file, or has an unresolved import; the message has the reason."""


class Files:
    """The message types of a registered schema."""

    def __init__(self, found: Registered) -> None:
        """Raises NoMessageError."""
        given = {**dict(zip(found.names, found.references, strict=True)), MAIN: found.schema}
        described = {name: _described(name, text) for name, text in given.items()}
        if any(one is None for one in described.values()):
            described = {**described, **_compiled(given)}
        self._pool = descriptor_pool.DescriptorPool()
        self._added: set[str] = set()
        self._files = {name: one for name, one in described.items() if one is not None}
        try:
            self._add(MAIN, ())
            self._main = self._pool.FindFileByName(MAIN)
        except (TypeError, KeyError) as e:
            raise NoMessageError(f"the schema cannot be linked: {e}") from None

    def message(self, path: Sequence[int]) -> Any:
        """The class of a message by its path: index in the file, then indexes of nested messages."""
        try:
            described = self._files[MAIN].message_type[path[0]]
            name = described.name
            for at in path[1:]:
                described = described.nested_type[at]
                name = f"{name}.{described.name}"
            package = f"{self._main.package}." if self._main.package else ""
            return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(package + name))
        except (IndexError, KeyError):
            raise NoMessageError(f"the schema has no message at {list(path)}") from None

    def _add(self, name: str, within: tuple[str, ...]) -> None:
        """Add a file, after its imports."""
        if name in self._added:
            return
        if name in within:
            raise NoMessageError(f"{name} imports itself")
        file = self._files.get(name) or _known(name)
        if file is None:
            raise NoMessageError(f"the schema imports {name}, to which it has no reference")
        for needed in file.dependency:
            self._add(needed, (*within, name))
        self._pool.Add(file)
        self._added.add(name)


def _described(name: str, text: str) -> Any:
    """The descriptor in a text of Base64; None for the text of a file."""
    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    found.name = name
    return found


def _known(name: str) -> Any:
    """A file that comes with the library."""
    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if stem in KNOWN:
        importlib.import_module(f"google.protobuf.{stem}_pb2")
        found = descriptor_pb2.FileDescriptorProto()
        descriptor_pool.Default().FindFileByName(name).CopyToProto(found)
        return found
    return _compiled({name: CONFLUENT[name]}).get(name) if name in CONFLUENT else None


def _compiled(texts: Mapping[str, str]) -> dict[str, Any]:
    """The descriptors of files, by Google's compiler. Raises NoMessageError, and OSError if the compiler is stopped."""
    if importlib.util.find_spec("grpc_tools") is None:
        raise NoMessageError("the registry has the schema as text; install kraftcluster[protobuf], which compiles it")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**CONFLUENT, **texts}.items():
            path = (Path(folder) / name).resolve()
            # The compiler takes a name that begins with - as an option, and with @ as a file of options.
            if name.startswith(("-", "@")) or not path.is_relative_to(Path(folder).resolve()):
                raise NoMessageError(f"{name!r} is not the path of an import")
            if _described(name, text) is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        out = Path(folder) / "descriptors"
        wanted = [name for name, text in texts.items() if _described(name, text) is None]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={out}"]
        try:
            done = subprocess.run(  # noqa: S603 - of our own interpreter; paths were checked
                [*command, "--include_imports", *wanted], capture_output=True, text=True, timeout=COMPILE_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"protoc has not compiled a schema within {COMPILE_S:g} s") from None
        if done.returncode < 0:
            raise OSError(f"protoc was ended by signal {-done.returncode} while it compiled a schema")
        if done.returncode:
            complaints = [line for line in done.stderr.splitlines() if ".proto:" in line and "[libprotobuf" not in line]
            complaints = [line for line in complaints if "No edition or syntax" not in line] or [done.stderr]
            raise NoMessageError(
                f"the schema is not protobuf: {' '.join(' '.join(complaints).split()).replace(f'{folder}/', '')[:160]}"
            )
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return {file.name: file for file in found.file if not file.name.startswith("google/protobuf/")}
