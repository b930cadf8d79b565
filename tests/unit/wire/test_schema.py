"""The notation, and the code generated from it."""

from __future__ import annotations

from pathlib import Path

import pytest

import kraft_protocol.wire
from kraft_protocol.wire import messages, stored
from kraft_protocol.wire.schema import MAX_VERSION, block, index, names, parse, parse_versions, snake_case
from kraft_protocol.wire.stubs import stub
from tests.peer import require_peer
from tools import import_schemas, peers

WIRE = Path(kraft_protocol.wire.__file__).parent


def test_versions_are_parsed() -> None:
    for text, low, high in (("3+", 3, MAX_VERSION), ("3-13", 3, 13), ("4", 4, 4)):
        assert (parse_versions(text).low, parse_versions(text).high) == (low, high)
    assert 0 not in parse_versions("none")


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("TransactionalId", "transactional_id"),
        ("TimeoutMs", "timeout_ms"),
        ("ISR", "isr"),
        ("KRaftVersion", "k_raft_version"),
        ("Enable2Pc", "enable2_pc"),
        ("errorCode", "error_code"),
        ("From", "from_"),
    ],
)
def test_names_are_parsed(name: str, snake: str) -> None:
    assert snake_case(name) == snake


def test_a_block_is_parsed() -> None:
    schema = parse(
        "request 90 ProbeRequest 1-4 flexible 3+ listeners broker,controller unstable\n"
        "  struct Place 1+\n"
        "    Host string 1+\n"
        "  Here Place 2+ null 3+ tag 0 3+ ignorable default null\n"
        "  Others []Place 1+\n"
        '  Name string 1-2 default ""'
    )
    assert (schema.kind, schema.api_key, schema.name) == ("request", 90, "ProbeRequest")
    assert (schema.valid.low, schema.valid.high, schema.flexible.low) == (1, 4, 3)
    assert schema.listeners == ("broker", "controller")
    assert schema.unstable
    here, others, name = schema.top.fields
    assert (here.struct, others.struct) == (schema.structs["Place"], schema.structs["Place"])
    assert (here.tag, here.tagged.low, here.nullable.low, here.ignorable) == (0, 3, 3, True)
    assert here.default_is_null
    assert (others.array, name.default, name.versions.high) == (True, "", 2)


def test_the_index_matches_the_schema_files() -> None:
    for name, entry in index().items():
        assert block(name).split("\n", 1)[0] == entry.head
    assert len(names("messages")) + len(names("stored")) == len(index()) > 270


def test_modules_give_only_their_messages() -> None:
    assert messages.FetchRequest.__name__ == "FetchRequest"
    assert stored.TopicRecord.__name__ == "TopicRecord"
    for module, name in ((messages, "TopicRecord"), (stored, "FetchRequest"), (messages, "NoSuchRequest")):
        with pytest.raises(AttributeError, match=name):
            getattr(module, name)


@pytest.mark.parametrize("group", ["messages", "stored"])
def test_the_stubs_match_the_notation(group: str) -> None:
    assert (WIRE / f"{group}.pyi").read_text() == stub(group), "run tools/import_schemas.py"


@pytest.mark.peer
def test_the_notation_matches_the_release(tmp_path: Path) -> None:
    texts = import_schemas.files(import_schemas.read_all(require_peer(), require_peer(peers.LAST_WITH_ZOOKEEPER)))
    import_schemas.write(tmp_path, texts)
    ours = {path.name: path.read_text() for path in (WIRE / "schemas").iterdir() if path.suffix in {".ks", ".txt"}}
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == ours, "run tools/import_schemas.py"


def test_the_importer_takes_facts_and_leaves_words() -> None:
    schema = import_schemas.load(
        "// a licence\n"
        '{"apiKey": 91, "type": "request", "listeners": ["broker"], "name": "ProbeRequest", "validVersions": "0-1",\n'
        "  // a remark\n"
        '  "flexibleVersions": "1+", "latestVersionUnstable": true, "fields": [\n'
        '  {"name": "Items", "type": "[]Item", "versions": "0+", "about": "Some words.", "fields": [\n'
        '    {"name": "On", "type": "bool", "versions": "0+", "default": true},\n'
        '    {"name": "Note", "type": "string", "versions": "1+", "nullableVersions": "1+", "default": "null",\n'
        '     "taggedVersions": "1+", "tag": 3, "ignorable": true}]}]}'
    )
    assert import_schemas.notate("clients", schema).split("\n") == [
        "request 91 ProbeRequest 0-1 flexible 1+ listeners broker unstable",
        "  Items []Item 0+",
        "    On bool 0+ default true",
        "    Note string 1+ null 1+ tag 3 1+ ignorable default null",
    ]
    assert import_schemas.file_of("clients", schema) == "probe"
