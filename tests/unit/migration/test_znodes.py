"""The contents of znodes: as Kafka writes them, and what is refused."""

from __future__ import annotations

import pytest

from kraft_node.migration.passwords import PasswordEncoder
from kraft_node.migration.tree import access, paths, values
from kraft_node.migration.tree.values import ZnodeError
from kraft_node.runtime.env import RealRng
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.stored import DelegationTokenRecord

TOPIC_ID = Uuid(bytes(range(16)))


def test_a_topic_has_its_reassignments_beside_its_replicas() -> None:
    topic = values.TopicValue(
        TOPIC_ID,
        {0: values.Assignment((1, 2), (2,), ()), 1: values.Assignment((3,)), 10: values.Assignment((1, 3), (), (3,))},
    )
    data = values.topic_data(topic)
    assert values.read_topic("/brokers/topics/t", data) == topic
    assert data == (
        b'{"version":3,"partitions":{"0":[1,2],"1":[3],"10":[1,3]},"adding_replicas":{"0":[2]},'
        b'"removing_replicas":{"10":[3]},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}'
    )


def test_a_partition_names_its_recovery_only_while_it_recovers() -> None:
    healthy = values.PartitionValue(1, 7, (1, 2))
    assert (
        values.partition_data(healthy, 4)
        == b'{"version":1,"leader":1,"leader_epoch":7,"controller_epoch":4,"isr":[1,2]}'
    )
    recovering = healthy._replace(leader_recovering=1)
    assert values.read_partition("/p", values.partition_data(recovering, 4)) == recovering
    assert values.read_partition("/p", values.partition_data(healthy, 4)) == healthy


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"partitions":{}}', "the field topic_id is missing"),
        (b'{"topic_id":7}', "the field topic_id is 7, not of type str"),
        (b'{"topic_id":"x","partitions":{}}', "the field topic_id: not a UUID: 'x'"),
        (b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"a":[1]}}', "'a' is not the number of a partition"),
        (
            '{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"²":[1]}}'.encode(),
            "'²' is not the number of a partition",
        ),
        (b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"0":["1"]}}', "must have a list of broker ids"),
    ],
)
def test_a_malformed_topic_is_refused_with_its_path(data: bytes, fault: str) -> None:
    with pytest.raises(ZnodeError, match=r"^znode /brokers/topics/t: ") as refused:
        values.read_topic("/brokers/topics/t", data)
    assert fault in str(refused.value)


def test_the_progress_of_an_unknown_version_is_refused() -> None:
    with pytest.raises(ZnodeError, match="version 1 is unknown: only version 0 exists"):
        values.read_migration("/migration", b'{"version":1}')


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (None, "<default>"),
        ("bob x/y*%", "bob%20x%2Fy%2A%25"),
        ("a~b", "a%7Eb"),
        ("über", "%C3%BCber"),
        ("a-b_c.d", "a-b_c.d"),
    ],
)
def test_names_of_entities_are_percent_encoded(name: str | None, part: str) -> None:
    assert paths.encoded_name(name) == part
    assert paths.decoded_name(part) == name


def test_acls_keep_every_operation_and_permission() -> None:
    entries = {
        access.AclEntry("User:a", "*", operation, permission) for operation in range(2, 16) for permission in (2, 3)
    }
    assert access.read_acls("/kafka-acl/Topic/t", access.acls_data(entries)) == entries


def test_an_unknown_operation_of_an_acl_is_refused() -> None:
    data = b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Dance","host":"*"}]}'
    with pytest.raises(ZnodeError, match="is not an entry of ACLs"):
        access.read_acls("/kafka-acl/Topic/t", data)


def test_a_delegation_token_keeps_its_principals() -> None:
    record = DelegationTokenRecord("User:a b", "User:c/d", ["User:e,f"], 1, 3, 2, "id")
    assert access.read_token("/t", access.token_data(record)) == record


def test_the_owner_of_a_token_without_requester_requested_it() -> None:
    data = (
        b'{"version":2,"owner":"User%3Aa","renewers":[],"issueTimestamp":1,"maxTimestamp":"3","expiryTimestamp":2,'
        b'"tokenId":"id"}'
    )
    assert access.read_token("/t", data) == DelegationTokenRecord("User:a", "User:a", [], 1, 3, 2, "id")


def test_a_credential_of_another_form_is_refused() -> None:
    with pytest.raises(ZnodeError, match="SCRAM-SHA-256 does not have Kafka's form"):
        access.read_scram("/config/users/a", "a", "SCRAM-SHA-256", "salt=abc,iterations=5")


def test_passwords_of_kafka_are_decrypted() -> None:
    """The text comes from Apache Kafka 3.9.2 with this secret."""
    text = (
        "initializationVector:uOBfgeybglIRPcGo0FbvZQ==,keyLength:128,salt:e5ruDixJkmAF5fwqpHlgUVtsGG+oFoUU0g5inrm0xOGRptZG"
        "NNZL6G0Tt85Pk/NFFd+H8KEcA5xqBaC7k69Yvvcdu3WYoP3C10kAYOyyzXuTLlQke8Kb2/tcJI0Tpf8586ligZ4H18eeQTgQ5113+teUSog2CLHs7"
        "MEuXdSDfv5hSE+oG8KEHL0m0qQlbYwNK0kJ23TI/o9B+qanmFwFPcSy5YdnD3p0/ioxIxZ3PEsXodUl+oR76+O17qP9dEs/AF7hMgGI8ro/yC6lxt"
        "0k+PoCGZvGlV+/a1z/jq+mPUkFps36RQvDyLy90Odf5tG9nTao26vlKrofmVjw5VspSg==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,"
        "cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4096,passwordLength:6,encryptedPassword:4QwKfJyxBZvEo7DgZ9WJ6Q=="
    )
    path = "/config/brokers/1"
    assert PasswordEncoder("s3cret of the encoder", RealRng()).decoded(path, "ssl.key.password", text) == "geheim"
    for wrong in (None, "another"):
        with pytest.raises(ZnodeError, match=r"^znode /config/brokers/1: ssl.key.password .*password\.encoder\.secret"):
            PasswordEncoder(wrong, RealRng()).decoded(path, "ssl.key.password", text)


@pytest.mark.parametrize("password", ["", "p", "0123456789abcdef", "Straße 🔑 " * 40])
def test_an_encrypted_password_is_read_back(password: str) -> None:
    encoder = PasswordEncoder("secret", RealRng())
    text = encoder.encoded(password)
    assert text != encoder.encoded(password), "each has a salt of its own"
    assert encoder.decoded("/p", "k", text) == password


def test_without_a_secret_passwords_are_plain() -> None:
    encoder = PasswordEncoder(None, RealRng())
    assert encoder.encoded("plain") == "plain"
    assert encoder.decoded("/p", "k", "plain") == "plain"
