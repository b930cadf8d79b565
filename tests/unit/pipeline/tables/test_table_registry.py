"""Protocol Buffers and JSON Schema by a registry, written by Confluent's serializers; TLS and OAuth of its client."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format

from kraft_pipeline.tables import values
from kraft_pipeline.tables.errors import RefusedError
from kraft_pipeline.tables.formats import registry
from kraft_pipeline.tables.formats.jsonschemas import JsonSchemaParser
from kraft_pipeline.tables.formats.protofiles import MAIN, Files, NoMessageError
from kraft_pipeline.tables.formats.protovalues import ProtoParser
from kraft_pipeline.tables.formats.registry import Registered, Registry, UnknownSchemaError
from kraft_pipeline.tables.formats.valuespec import Access, OAuth
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.specs.table_spec import SpecError, ValueSpec
from kraft_protocol.client.errors import ClientError
from tests.documents import table_document
from tests.registry import RegistryServer

NOTHING = pa.schema([])
CONTEXT = SerializationContext("t", MessageField.VALUE)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(registry, "_KNOWN", {})
    with RegistryServer().serving() as found:
        yield found


def binaries(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


ORDER = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "money.proto";
import "confluent/meta.proto";
enum Kind { UNKNOWN = 0; SALE = 1; }
message Outer { message Inner { string text = 1; } Inner inner = 1; }
message Order {
  int64 id = 1 [(confluent.field_meta).doc = "which"];
  optional string note = 2;
  Kind kind = 3;
  repeated Line lines = 4;
  map<string, int32> counts = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Int64Value maybe = 7;
  google.protobuf.Struct more = 8;
  money.Amount price = 9;
  uint64 big = 10;
  bytes raw = 11;
  oneof choice { string left = 12; double right = 13; }
  Nothing nothing = 14;
  fixed32 small = 15;
  map<int64, Line> by_number = 16;
}
message Line { string sku = 1; uint32 count = 2; }
message Nothing {}
"""
MONEY = 'syntax = "proto3"; package money; message Amount { int64 units = 1; string currency = 2; }'


def classes() -> Files:
    return Files(Registered(ORDER, (MONEY,), ("money.proto",)))


def test_messages_of_every_type_by_confluents_serializer(server: RegistryServer) -> None:
    """It registers descriptors, which a registry returns on request."""
    files = classes()
    order = files.message((1,))
    client = SchemaRegistryClient({"url": server.url})
    options = {"use.deprecated.format": False, "skip.known.types": True}
    options["reference.subject.name.strategy"] = lambda _, reference: reference.name
    for name in ("money.proto", "confluent/meta.proto"):
        server.add(name, {"money.proto": MONEY, "confluent/meta.proto": 'syntax = "proto3";'}[name])
    serialize = ProtobufSerializer(order, client, options)
    full = order(id=1 << 40, note="", kind=1, lines=[{"sku": "x", "count": 2}], counts={"b": 2, "a": 1}, raw=b"\xff")
    full.at.FromJsonString("2024-02-29T10:00:00.123456789Z")
    full.maybe.value = 0
    json_format.ParseDict({"a": [1, None]}, full.more)
    full.price.units, full.big, full.right, full.small = 5, 7, 0.5, (1 << 32) - 1
    full.nothing.SetInParent()
    full.by_number[3].sku = "y"
    values = [serialize(full, CONTEXT), serialize(order(), CONTEXT), serialize(order(big=1 << 63, kind=9), CONTEXT)]
    parse = ProtoParser(ValueSpec("protobuf", registry=server.url), retry_s=1)
    found = parse(
        binaries(*values, None, b"", b"\0\0\0\0\1", values[0][:-1], b"\0\0\0\0\x63\0"), NOTHING, additive=True
    )
    assert found.good.tolist() == [0, 1]
    first, second = found.table.to_pylist()
    assert first == {
        "id": 1 << 40,
        "note": "",
        "kind": "SALE",
        "lines": [{"sku": "x", "count": 2}],
        "counts": [("a", 1), ("b", 2)],
        "at": datetime.datetime(2024, 2, 29, 10, 0, 0, 123456, datetime.UTC),
        "maybe": 0,
        "more": '{"a": [1.0, null]}',
        "price": {"units": 5, "currency": ""},
        "big": 7,
        "raw": b"\xff",
        "left": None,
        "right": 0.5,
        "nothing": True,
        "small": (1 << 32) - 1,
        "by_number": [(3, {"sku": "y", "count": 0})],
    }
    nulls = ("note", "at", "maybe", "more", "price", "left", "right", "nothing")
    assert [second[name] for name in nulls] == [None] * len(nulls)
    assert (second["id"], second["kind"], second["lines"], second["counts"]) == (0, "UNKNOWN", [], [])
    assert {place: bad.code for place, bad in found.bad.items()} == {
        2: "protobuf.value",
        4: "protobuf.schema",
        5: "protobuf.schema",
        6: "protobuf.value",
        7: "protobuf.schema",
    }
    assert (
        found.bad[2].reason
        == "protobuf: the field /big is 9223372036854775808, which a column of type long does not hold"
    )


def framed(number: int, path: bytes, message: Any) -> bytes:
    return b"\0" + number.to_bytes(4) + path + message.SerializeToString()


def test_textual_schemas_and_nested_messages_are_resolved(server: RegistryServer) -> None:
    server.add("money", MONEY, schemaType="PROTOBUF")
    reference = {"name": "money.proto", "subject": "money", "version": 1}
    number = server.add("t", ORDER, schemaType="PROTOBUF", references=[reference])
    files = classes()
    inner, line = files.message((0, 0))(text="x"), files.message((2,))(sku="s")
    parse = ProtoParser(ValueSpec("protobuf", registry=server.url), retry_s=1)
    found = parse(
        binaries(framed(number, b"\x04\x00\x00", inner), framed(number, b"\x02\x04", line)), NOTHING, additive=True
    )
    assert found.table.to_pylist() == [
        {"text": "x", "sku": None, "count": None},
        {"text": None, "sku": "s", "count": 0},
    ]
    nowhere = parse(
        binaries(framed(number, b"\x02\x40", line), framed(number, b"\x04\x02", line)), NOTHING, additive=True
    )
    assert nowhere.bad[0].reason == "schema 2: the schema has no message at [32]"
    assert {bad.code for bad in nowhere.bad.values()} == {"protobuf.schema"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", f"the schema is not protobuf: {MAIN}:1:1: Expected top-level statement"),
        ('syntax = "proto3"; import "gone.proto"; message M { int32 a = 1; }', "gone.proto"),
        ('syntax = "proto3"; message M { M inner = 1; }', "/inner: M contains itself"),
        ('syntax = "proto3"; message M {}', "M has no fields"),
        ('syntax = "proto3"; message M { int32 _offset = 1; }', "has the name of another column"),
    ],
)
def test_protobuf_schemas_that_cannot_become_columns_are_refused(
    server: RegistryServer, text: str, message: str
) -> None:
    number = server.add("t", text, schemaType="PROTOBUF")
    parse = ProtoParser(ValueSpec("protobuf", registry=server.url), retry_s=1)
    found = parse(binaries(b"\0" + number.to_bytes(4) + b"\0"), NOTHING, additive=True, reserved=frozenset({"_offset"}))
    assert found.bad[0].code == "protobuf.schema"
    assert message in found.bad[0].reason


def test_a_schema_of_another_kind_is_named(server: RegistryServer) -> None:
    number = server.add("t", '{"type": "object"}', schemaType="JSON")
    parse = ProtoParser(ValueSpec("protobuf", registry=server.url), retry_s=1)
    found = parse(binaries(b"\0" + number.to_bytes(4) + b"\0"), NOTHING, additive=True)
    assert found.bad[0].reason == f"schema 1 of {server.url} is of type JSON, not PROTOBUF"


CUSTOMER = {
    "$id": "https://shop.example/customer.json",
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}},
    "required": ["name"],
}
PURCHASE = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$id": "https://shop.example/purchase.json",
    "title": "Purchase",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["null", "number"]},
        "customer": {"$ref": "customer.json"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "size": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/Size"}]},
        "free": {},
    },
    "required": ["id"],
    "definitions": {"Size": {"type": "object", "properties": {"cm": {"type": "integer"}}}},
}


def test_json_of_confluents_serializer_is_validated_by_its_schema(server: RegistryServer) -> None:
    server.add("customer", CUSTOMER, schemaType="JSON")
    client = SchemaRegistryClient({"url": server.url})
    given = Schema(json.dumps(PURCHASE), "JSON", [SchemaReference("customer.json", "customer", 1)])
    serialize = JSONSerializer(given, client)
    good = {"id": 1, "price": 0.1, "customer": {"name": "ada"}, "tags": ["a"], "counts": {"x": 1}, "size": {"cm": 3}}
    values = [serialize({**good, "free": "text"}, CONTEXT), serialize({"id": 2, "price": None, "size": None}, CONTEXT)]
    head = values[0][:5]

    def raw(value: Any) -> bytes:
        return head + (value if isinstance(value, bytes) else json.dumps(value).encode())

    bad = [raw({}), raw({"id": "x"}), raw({"id": 1, "customer": {"name": ""}}), raw(b"{"), b"{}", b"\0\0\0\0\x63{}"]
    bad.append(raw(b'{"id": 1, "price": 0.12345678901234567891}'))
    parse = JsonSchemaParser(ValueSpec("json", registry=server.url), NOTHING, retry_s=1)
    found = parse(binaries(*values, None, *bad), NOTHING, additive=True)
    assert found.table.to_pylist() == [
        {**good, "counts": [("x", 1)], "free": "text"},
        {**dict.fromkeys(good), "counts": None, "id": 2, "free": None},
    ]
    assert found.table.schema.field("price").type == pa.float64()
    codes = ["value", "value", "value", "", "schema", "schema", ""]
    assert [found.bad[place].code for place in range(3, 10)] == [
        {"": "json.syntax"}.get(code, f"jsonschema.{code}") if place < 9 else "json.number"
        for place, code in zip(range(3, 10), codes, strict=True)
    ]
    assert found.bad[4].reason == "/id: 'x' is not of type 'integer'"
    assert found.bad[5].reason.startswith("/customer/name: ")
    declared = ValueSpec("json", registry=server.url, schema={"price": "decimal(20,10)"})
    fields = pa.schema([("price", pa.decimal128(20, 10))])
    assert not JsonSchemaParser(declared, fields, retry_s=1)(binaries(values[0]), fields, additive=True).bad


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ('{"type": 5}', "the schema is not a JSON Schema"),
        ("nonsense", "the schema is not a JSON Schema"),
        ('{"properties": {"a": {"$ref": "gone.json"}}}', "the schema is not a JSON Schema"),
        ('{"properties": {"_offset": {"type": "string"}}}', "has the name of another column"),
    ],
)
def test_json_schemas_that_cannot_become_columns_are_refused(server: RegistryServer, schema: str, message: str) -> None:
    number = server.add("t", schema, schemaType="JSON")
    parse = JsonSchemaParser(ValueSpec("json", registry=server.url), NOTHING, retry_s=1)
    found = parse(
        binaries(b"\0" + number.to_bytes(4) + b'{"a": 1}'), NOTHING, additive=True, reserved=frozenset({"_offset"})
    )
    assert found.bad[0].code == "jsonschema.schema"
    assert message in found.bad[0].reason


def test_tokens_are_requested_and_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_KNOWN", {})
    with RegistryServer(tokens=2).serving() as server:
        numbers = [server.add("t", {"type": "record", "name": f"R{at}", "fields": []}) for at in range(5)]
        oauth = OAuth(f"{server.url}/token", "id", "secret", "read", "lsrc-1", "pool-1")
        client = Registry(server.url, retry_s=10, access=Access(oauth=oauth))
        for number in numbers:
            client.schema(number)
        assert server.given == ["token-0", "token-1", "token-2"]
        given = {name.lower(): value for name, value in server.headers[0].items()}
        assert (given["target-sr-cluster"], given["confluent-identity-pool-id"]) == ("lsrc-1", "pool-1")
        wrong = Registry(server.url, retry_s=60, access=Access(oauth=OAuth(f"{server.url}/token", "id", "wrong")))
        with pytest.raises(RefusedError, match=r"tokens of .*: 401 Unauthorized"):
            wrong.schema(99)
        away = Registry(server.url, retry_s=0.2, access=Access(oauth=OAuth("http://127.0.0.1:1/token", "id", "s")))
        with pytest.raises(ClientError, match="schema registry"):
            away.schema(99)


@pytest.mark.parametrize("lifetime", [10**400, float("inf"), True, "soon", None], ids=range(5))
def test_a_token_with_an_impossible_lifetime_is_used_for_a_while(
    lifetime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_KNOWN", {})

    class Odd(RegistryServer):
        def token(self, authorization: str, form: bytes) -> tuple[int, Any]:
            status, answer = super().token(authorization, form)
            return status, {**answer, "expires_in": lifetime}

    with Odd(tokens=2).serving() as server:
        number = server.add("t", {"type": "record", "name": "R", "fields": []})
        oauth = OAuth(f"{server.url}/token", "id", "secret")
        Registry(server.url, retry_s=1, access=Access(oauth=oauth)).schema(number)
        assert server.given == ["token-0"]


def test_credentials_stay_at_their_origin(server: RegistryServer) -> None:
    """Redirects were followed with all headers, so another host, or one without TLS, saw passwords and tokens."""
    number = server.add("a", {"type": "long"})
    with RegistryServer().serving() as front:
        front.redirects = [server.url]
        assert Registry(front.url, "user:secret").schema(number).schema == '{"type": "long"}'
        assert "Authorization" not in server.headers[-1]
        oauth = OAuth(f"{front.url}/token", "id", "secret")
        front.redirects = [server.url]
        with pytest.raises(RefusedError, match=f"tokens of {front.url}/token: 404"):
            Registry(server.url, access=Access(oauth=oauth)).schema(number + 1)
        assert "Authorization" not in server.headers[-1]
        server.refuse = True
        front.redirects = [server.url]
        with pytest.raises(RefusedError, match=rf"401 Unauthorized at {server.url}/.*, where it was redirected"):
            Registry(front.url, "user:secret").schema(number + 1)


def test_credentials_follow_redirects_within_their_origin(server: RegistryServer) -> None:
    number = server.add("a", {"type": "long"})
    server.redirects = [server.url]
    Registry(server.url, "user:secret").schema(number)
    assert server.headers[-1]["Authorization"].startswith("Basic ")


def test_a_registry_is_reached_only_with_its_authority_and_a_client_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_KNOWN", {})
    pem, key = certificate(tmp_path / "server")
    mine, my_key = certificate(tmp_path / "client")
    both = tmp_path / "both.pem"
    both.write_text(pem + key)
    (tmp_path / "client.pem").write_text(mine)
    with RegistryServer(tls=both, authority=tmp_path / "client.pem").serving() as server:
        number = server.add("t", {"type": "record", "name": "R", "fields": []})
        client = Registry(server.url, retry_s=5, access=Access(ca=pem, certificate=mine, key=my_key))
        assert client.schema(number).references == ()
        with pytest.raises(ClientError):
            Registry(server.url, retry_s=0.2, access=Access(ca=pem)).schema(99)
        with pytest.raises(RefusedError, match="self-signed certificate"):
            Registry(server.url, retry_s=60).schema(99)
    with pytest.raises(SpecError, match=r"spec.value.registry.tls: "):
        Registry("https://a", access=Access(ca="-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"))


def certificate(at: Path) -> tuple[str, str]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    pem, key = at.with_suffix(".crt"), at.with_suffix(".key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", f"/CN={at.name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(pem)], check=True, capture_output=True)
    return pem.read_text(), key.read_text()


def test_wrong_specifications_of_registries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(**value: Any) -> ValueSpec:
        return table_spec.parse(table_document(value={"format": "protobuf", **value}), tmp_path).value

    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    (tmp_path / "none.pem").write_text("nothing")
    monkeypatch.setenv("SECRET", "s")
    oauth = {"tokenUrl": "https://a/token", "clientId": "id", "clientSecretEnv": "SECRET"}
    found = parsed(registry={"url": "https://a", "tls": {"caFile": "ca.pem"}, "oauth": oauth})
    assert found.access == Access(ca="-----BEGIN CERTIFICATE-----", oauth=OAuth("https://a/token", "id", "s"))
    assert parsed(format="json", registry={"url": "http://a", "token": "t"}).access.token == "t"
    at = "spec.value.registry"
    for wrong, message in (
        ({}, f"{at}.url: protobuf values name their schema"),
        ({"registry": {"url": "http://a", "tls": {"caFile": "ca.pem"}}}, f"{at}.tls: http://a does not use https"),
        ({"registry": {"url": "https://a", "tls": {"caFile": "gone.pem"}}}, f"{at}.tls.caFile: .*No such file"),
        ({"registry": {"url": "https://a", "tls": {"caFile": "none.pem"}}}, f"{at}.tls.caFile: none.pem has no PEM"),
        ({"registry": {"url": "https://a", "tls": {"keyFile": "ca.pem"}}}, f"{at}.tls: certificateFile and keyFile"),
        ({"registry": {"url": "https://a", "tls": {"cafile": "x"}}}, f"{at}.tls.cafile: .*did you mean caFile"),
        ({"registry": {"url": "https://a", "user": "u", "oauth": oauth}}, f"{at}: user and oauth are ways to log in"),
        ({"registry": {"url": "https://a", "oauth": {"clientId": "x"}}}, f"{at}.oauth.tokenUrl: is missing"),
        ({"registry": {"url": "https://a", "oauth": {**oauth, "scopes": "x"}}}, "did you mean scope"),
        ({"format": "protobuff"}, r"did you mean protobuf\?"),
        ({"format": "json", "envelope": "debezium", "registry": {"url": "http://a"}}, "only avro has a registry"),
        ({"format": "avro", "registry": {"token": "t"}}, f"{at}.url: is missing"),
    ):
        with pytest.raises(SpecError, match=message):
            parsed(**wrong)


@pytest.mark.parametrize(
    ("value", "module", "extra"),
    [
        ({"format": "protobuf"}, "google.protobuf", "protobuf"),
        ({"format": "json"}, "jsonschema", "jsonschema"),
        ({"format": "avro"}, "fastavro", "avro"),
    ],
)
def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, value: dict[str, Any], module: str, extra: str
) -> None:
    given = table_spec.parse(table_document(value={**value, "registry": {"url": "http://a"}}))
    values.first_fields(given)
    monkeypatch.setattr(values, "find_spec", lambda name: None if name == module else name)
    with pytest.raises(SpecError, match=rf"spec.value.format: {module} is not installed; .*\[{extra}\]"):
        values.first_fields(given)


def test_a_replica_that_lags_makes_no_schema_unknown(server: RegistryServer) -> None:
    """The first address said that the schema did not exist, and its records became dead letters."""
    with RegistryServer().serving() as lagging:
        urls = f"{lagging.url},{server.url}"
        server.add("base", "[]")
        server.add("t", '"string"', references=[{"name": "base", "subject": "base", "version": 1}])
        assert Registry(urls, retry_s=0).schema(2).schema == '"string"'
        assert lagging.asked, "the first address was asked"
        with pytest.raises(UnknownSchemaError, match=r"schema 3 of .* does not exist"):
            Registry(urls, retry_s=0).schema(3)
        server.away = True
        with pytest.raises(ClientError, match=r"schema 3 of .*: 503"):
            Registry(urls, retry_s=0).schema(3)
        server.away, lagging.away = False, True
        with pytest.raises(ClientError, match=r"schema 3 of .*: 503"):
            Registry(urls, retry_s=0).schema(3)


def test_a_registry_that_lags_behind_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its values were dead letters, although the producer had registered their schema."""
    monkeypatch.setattr(registry, "_KNOWN", {})
    monkeypatch.setattr(registry, "_AWAITED", {})
    monkeypatch.setattr(registry, "LAG_PAUSE_S", 0.01)
    with RegistryServer().serving(lag_s=60.0) as server:
        real, answers = server.answer, list[int]()

        def lagging(method: str, path: str, body: Any) -> tuple[int, Any]:
            answers.append(1)
            if len(answers) == 3:
                server.add("t", '"string"')
            return real(method, path, body)

        monkeypatch.setattr(server, "answer", lagging)
        assert Registry(server.url).schema(1).schema == '"string"'
        assert len(answers) == 3


def test_arbitrary_ids_do_not_stop_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_AWAITED", {})
    monkeypatch.setattr(registry, "LAG_PAUSE_S", 0.01)
    with RegistryServer().serving(lag_s=0.05) as server:
        found = Registry(server.url)
        for number in [7, *range(100, 150)]:
            with pytest.raises(UnknownSchemaError, match="does not exist"):
                found.schema(number)
        assert len(registry._AWAITED) == registry.LAGS_MAX
        asked = len(server.asked)
        with pytest.raises(UnknownSchemaError):  # by another task of the process
            Registry(server.url).schema(7)
        assert len(server.asked) == asked + 1


@pytest.mark.parametrize("signal", [0, 9])
def test_a_compiler_that_is_stopped_makes_no_dead_letters(monkeypatch: pytest.MonkeyPatch, signal: int) -> None:
    """On a busy machine, a compiler that took too long was started twice for each record, for a minute each."""

    def run(command: Any, **_: Any) -> Any:
        if not signal:
            raise subprocess.TimeoutExpired(command, 60)
        return subprocess.CompletedProcess(command, -signal, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(OSError, match="within 60 s" if not signal else "ended by signal 9"):
        Files(Registered('syntax = "proto3"; message M { int32 a = 1; }', ()))


@pytest.mark.parametrize("name", ["--python_out={folder}", "@{folder}/arguments", "../outside.proto", "/outside.proto"])
def test_the_name_of_a_reference_is_no_option_of_the_compiler(name: str, tmp_path: Path) -> None:
    """Names come from the registry: an option would let its users write files where the pipeline runs."""
    pytest.importorskip("grpc_tools")
    (tmp_path / "arguments").write_text(f"--python_out={tmp_path}\n")
    text = 'syntax = "proto3"; message Order { int64 id = 1; }'
    with pytest.raises(NoMessageError, match="is not the path of an import"):
        Files(Registered(text, (text,), (name.format(folder=tmp_path),)))
    assert [path.name for path in tmp_path.iterdir()] == ["arguments"]
