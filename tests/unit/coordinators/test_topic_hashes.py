"""The metadata hash against values of the xxhash library (4.1.0) and of Kafka's classes."""

import pytest

from kraft_node.broker.coordinators.group.consumer.topic_hashes import group_hash, topic_hash
from kraft_node.broker.coordinators.group.consumer.xxh3 import xxh3_64


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, 0x2D06800538D394C2),
        (1, 0xC44BDFF4074EECDB),
        (3, 0xC3489259E968AD9E),
        (4, 0xD3D60C1519014E89),
        (8, 0xB88DEE77F6BF6980),
        (9, 0x03688DCAD730D826),
        (16, 0x9DA23836ADF2BE1E),
        (17, 0xF34C3C9CF5A112D1),
        (128, 0x4C659B745F435148),
        (129, 0xB85222B83902B6E5),
        (240, 0xD6DFBF67B0675B54),
        (241, 0xC614C8C3575348C1),
        (1024, 0xF22EF3DC84FF47EA),
        (1025, 0x43F869A83769A435),
        (3000, 0xB3EACB6E81DD90F0),
    ],
)
def test_xxh3_of_every_length_class(length, expected):
    assert xxh3_64(bytes(k * 7 % 251 for k in range(length))) == expected


def test_a_topic_without_racks_has_kafkas_hash():
    topic_id = (1).to_bytes(8, "big") + (2).to_bytes(8, "big")
    assert topic_hash(topic_id, "foo", [[]]) == 2**64 - 7733839198221838498


def test_topic_hashes_are_combined_as_in_kafka():
    assert group_hash([("b", 2**64 - 7), ("a", 5)]) & (2**64 - 1) == 0xBF82BD687F7029B7
    assert group_hash([]) == 0


def test_a_groups_hash_is_that_in_a_record_of_kafka():
    """The group `modern` of tests/golden/coordinators/consumer_offsets_4_3_1.log."""
    topic_id = bytes.fromhex("eb4a669d48384df681af9c33acebeb59")
    assert group_hash([("t", topic_hash(topic_id, "t", [[], [], []]))]) == -1948162354016256395


def test_racks_count_in_any_order_and_ids_partitions_and_names_count():
    one = topic_hash(bytes(16), "t", [["a", "b"]])
    assert one == topic_hash(bytes(16), "t", [["b", "a"]])
    others = [
        topic_hash(bytes(16), "t", [["a", "c"]]),
        topic_hash(bytes(16), "u", [["a", "b"]]),
        topic_hash(b"1" * 16, "t", [["a", "b"]]),
        topic_hash(bytes(16), "t", [["a", "b"], []]),
    ]
    assert one not in others
    assert len(set(others)) == len(others)
