"""The operator's own codec against the node's, which is itself held to Apache Kafka's classes; and its connections."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft_operator.kafka import schemas
from kraft_operator.kafka.client import Address, Client, UnreachableError
from kraft_operator.kafka.codec import ProtocolError, codec
from kraft_operator.kafka.schemas import Api
from kraft_protocol.wire import messages
from kraft_protocol.wire.codec import decode, encode
from tests.wire_values import random_message

APIS = [value for value in vars(schemas).values() if isinstance(value, Api)]
ROUNDS = 30


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@pytest.mark.parametrize("side", ["request", "response"])
def test_every_message_is_the_nodes_byte_for_byte(api: Api, side: str) -> None:
    cls = getattr(messages, f"{api.name}{side.capitalize()}")
    ours = getattr(api, side)
    rng = random.Random(f"{api.name}{side}")
    for _ in range(ROUNDS):
        message = random_message(cls, api.version, rng)
        raw = bytes(encode(message, api.version))
        again = ours.encode(ours.decode(raw))
        assert decode(cls, again, api.version) == _untagged(cls, message, api.version)


def _untagged(cls: Any, message: Any, version: int) -> Any:
    """What is left of a message when its tagged fields, which are read and never written, have their defaults."""
    default = cls()

    def clean(struct_: Any, item: Any, root: Any) -> None:
        for field in struct_.fields:
            if version not in field.versions:
                continue
            if field.tag >= 0:
                setattr(item, field.name, getattr(root, field.name))
            elif field.struct is not None:
                for one in getattr(item, field.name) or ():
                    clean(field.struct, one, type(one)())

    clean(cls.SCHEMA.top, message, default)
    return message


def test_finalized_features_are_read_from_their_tags() -> None:
    features = [messages.ApiVersionsResponse.FinalizedFeatureKey("metadata.version", 30, 7)]
    message = messages.ApiVersionsResponse(finalized_features=features, finalized_features_epoch=9)
    read = schemas.API_VERSIONS.response.decode(bytes(encode(message, schemas.API_VERSIONS.version)))
    assert read["finalized"] == [{"name": "metadata.version", "most": 30, "least": 7}]
    assert read["epoch"] == 9


@pytest.mark.parametrize(
    "raw", [b"", b"\x00\x00", b"\xff\xff\xff\xff\xff\x0f", b"\xfe\xff\x03", b"\x05ab"], ids=["empty", "", "", "", ""]
)
def test_what_is_broken_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        codec("names:[str] size:i64").decode(raw)


# Connections

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def _with_server(answer: Answer, ask: Callable[[Client, Address], Awaitable[None]], timeout_s: float = 30) -> None:
    async def main() -> None:
        tasks: set[asyncio.Task[None]] = set()

        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.current_task())  # type: ignore[arg-type]
            try:
                await answer(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(one, "127.0.0.1", 0)
        try:
            async with Client(timeout_s) as client:
                await ask(client, Address("127.0.0.1", server.sockets[0].getsockname()[1]))
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


async def _request(reader: asyncio.StreamReader) -> int:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    body = await reader.readexactly(size)
    return int(struct.unpack_from(">i", body, 4)[0])


def _response(number: int) -> bytes:
    body = struct.pack(">i", number) + b"\0" + bytes(encode(messages.UnregisterBrokerResponse(), 0))
    return struct.pack(">i", len(body)) + body


def test_answers_come_to_their_questions_on_one_connection() -> None:
    connections = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        while True:
            writer.write(_response(await _request(reader)))

    async def ask(client: Client, address: Address) -> None:
        answers = await asyncio.gather(*(client.ask(address, schemas.UNREGISTER_BROKER, id=i) for i in range(5)))
        assert [one["error"] for one in answers] == [0] * 5

    _with_server(answer, ask)
    assert len(connections) == 1


def test_silence_is_no_answer_and_the_next_question_connects_anew() -> None:
    connections = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        number = await _request(reader)
        if len(connections) == 1:
            await asyncio.Event().wait()
        writer.write(_response(number))
        await writer.drain()

    async def ask(client: Client, address: Address) -> None:
        with pytest.raises(UnreachableError, match=r"no answer in 0\.3 s"):
            await client.ask(address, schemas.UNREGISTER_BROKER, id=1)
        client._timeout_s = 30
        assert (await client.ask(address, schemas.UNREGISTER_BROKER, id=1))["error"] == 0

    _with_server(answer, ask, timeout_s=0.3)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad", b"", struct.pack(">ii", 5, 77) + b"\0"])
def test_whoever_is_no_kafka_is_unreachable(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(said)
        await writer.drain()

    async def ask(client: Client, address: Address) -> None:
        with pytest.raises(UnreachableError):
            await client.ask(address, schemas.UNREGISTER_BROKER, id=1)

    _with_server(answer, ask)
