"""What the migrated cluster has: every kind of metadata that ZooKeeper stores, made through Kafka's own APIs."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from kraft_node.cli.client import NodeClient
from kraft_protocol.client.security import NO_SECURITY, ClientSecurity
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
)
from tests.compat.members import wait_for
from tests.compat.zookeeper_cluster import OldCluster, run_old_tool

SECRET: Final = "s3cret of the encoder"
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
PASSWORD: Final = b"wonderland"
ITERATIONS: Final = 4096

OVERRIDES: Final = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    "password.encoder.secret": SECRET,
    "delegation.token.secret.key": "a key of tokens",
}
"""Of brokers and controllers, so that ACLs, tokens and encrypted values exist."""


class Admin:
    """Requests to one broker. Every answer must be free of errors."""

    def __init__(self, bootstrap: str, security: ClientSecurity = NO_SECURITY) -> None:
        host, _, port = bootstrap.partition(",")[0].rpartition(":")
        self._client = NodeClient(host, int(port), security=security)

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, key: ApiKey, request: Any) -> Any:
        """The answer; AssertionError with it if it has an error code anywhere."""
        response = self._client.request(key, request)
        assert not re.search(r"error_code=-?[1-9]", repr(response)), response
        return response

    def topic(self, name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
        config = CreateTopicsRequest.CreatableTopicConfig
        topic = CreateTopicsRequest.CreatableTopic(
            name, partitions, replicas, configs=[config(k.replace("_", "."), v) for k, v in configs.items()]
        )
        self.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], timeout_ms=30_000))

    def configs(self, kind: int, name: str, **values: str | None) -> None:
        """Set dynamic configurations; None deletes."""
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            kind,
            name,
            [
                IncrementalAlterConfigsRequest.AlterableConfig(k.replace("_", "."), DELETE if v is None else SET, v)
                for k, v in values.items()
            ],
        )
        self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest([resource]))

    def quota(self, entity: dict[str, str | None], **values: float | None) -> None:
        """Set a client's quotas; None removes."""
        of = AlterClientQuotasRequest
        ops = [of.OpData(key, value or 0.0, value is None) for key, value in values.items()]
        entry = of.EntryData([of.EntityData(kind, name) for kind, name in entity.items()], ops)
        self.ask(ApiKey.ALTER_CLIENT_QUOTAS, of([entry]))

    def scram(self, user: str, mechanism: int, password: bytes = PASSWORD) -> None:
        of = AlterUserScramCredentialsRequest
        salt = b"salt of " + user.encode()
        salted = hashlib.pbkdf2_hmac({1: "sha256", 2: "sha512"}[mechanism], password, salt, ITERATIONS)
        upsertion = of.ScramCredentialUpsertion(user, mechanism, ITERATIONS, salt, salted)
        self.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, of([], [upsertion]))

    def remove_scram(self, user: str, mechanism: int) -> None:
        of = AlterUserScramCredentialsRequest
        self.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, of([of.ScramCredentialDeletion(user, mechanism)], []))

    def acl(self, kind: int, name: str, pattern: int, principal: str, host: str, operation: int, allow: int) -> None:
        creation = CreateAclsRequest.AclCreation(kind, name, pattern, principal, host, operation, allow)
        self.ask(ApiKey.CREATE_ACLS, CreateAclsRequest([creation]))

    def producer_id(self) -> int:
        """The id of a new producer: its broker has a block of ids then."""
        request = InitProducerIdRequest(None, 60_000)

        def got() -> Any:
            return self._client.request(ApiKey.INIT_PRODUCER_ID, request)

        return int(wait_for("a producer id", lambda: (r := got()).error_code == 0 and r).producer_id)


def fill(cluster: OldCluster) -> None:
    """Every kind of metadata, with names that ZooKeeper's paths must escape."""
    with Admin(cluster.bootstrap) as admin:
        admin.topic("plain", 3)
        admin.topic("with.config", 1, retention_ms="86400000", cleanup_policy="compact")
        admin.configs(BROKER, "1", log_cleaner_threads="2", listener_name_controller_ssl_keystore_password="geheim")
        admin.configs(BROKER, "", message_max_bytes="2000000")
        admin.quota({"user": "bob x/y*%"}, producer_byte_rate=1024.0, request_percentage=50.5)
        admin.quota({"user": None}, producer_byte_rate=4096.0)
        admin.quota({"user": "alice", "client-id": "c/1"}, consumer_byte_rate=2048.0)
        admin.quota({"user": None, "client-id": None}, consumer_byte_rate=1.0)
        admin.quota({"user": None, "client-id": "some"}, consumer_byte_rate=2.0)
        admin.quota({"client-id": None}, consumer_byte_rate=8192.0, controller_mutation_rate=1.5)
        admin.quota({"client-id": "one"}, request_percentage=25.0)
        admin.quota({"ip": "127.0.0.2"}, connection_creation_rate=10.0)
        admin.quota({"ip": None}, connection_creation_rate=1000.0)
        admin.scram("alice", 1)
        admin.scram("alice", 2)
        admin.scram("bob x/y*%", 1)
        admin.acl(2, "plain", 3, "User:alice", "*", 3, 3)
        admin.acl(2, "plain", 3, "User:alice", "10.0.0.1", 4, 2)
        admin.acl(2, "pre.fix-", 4, "User:a b", "*", 2, 3)
        admin.acl(3, "*", 3, "User:*", "*", 2, 3)
        admin.acl(4, "kafka-cluster", 3, "User:CN=x,OU=y", "*", 12, 3)
        admin.acl(5, "tx", 3, "User:alice", "*", 4, 3)
        admin.acl(6, "token", 3, "User:alice", "*", 8, 3)
        admin.acl(7, "User:alice", 3, "User:bob", "*", 13, 3)
        admin.producer_id()
    if cluster.brokers == 1:  # the tool asks the controller, and only the first broker has a listener for it
        create_token(cluster, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")


def change(cluster: OldCluster) -> None:
    """Changes of every kind, for a cluster that writes to both worlds."""
    with Admin(cluster.bootstrap) as admin:
        admin.topic("later", 2, retention_ms="5")
        admin.configs(TOPIC, "plain", retention_ms="7")
        admin.configs(TOPIC, "with.config", retention_ms=None, cleanup_policy=None)
        admin.configs(BROKER, "1", log_cleaner_threads=None, listener_name_controller_ssl_keystore_password="neu")
        admin.configs(BROKER, "", message_max_bytes=None)
        admin.quota({"user": "new/u", "client-id": "n c"}, consumer_byte_rate=5.0)
        admin.quota({"user": "carl"}, request_percentage=5.5, producer_byte_rate=12345678901.0)
        admin.quota({"ip": "127.0.0.2"}, connection_creation_rate=None)
        admin.quota({"user": None, "client-id": None}, consumer_byte_rate=None)
        admin.scram("dora", 2)
        admin.remove_scram("bob x/y*%", 1)
        admin.acl(2, "later", 3, "User:alice", "*", 3, 3)
        admin.acl(2, "plain", 3, "User:carl", "*", 3, 3)
        admin.acl(2, "pre2", 4, "User:alice", "*", 3, 3)
        admin.ask(
            ApiKey.DELETE_TOPICS,
            DeleteTopicsRequest(
                topic_names=[], topics=[DeleteTopicsRequest.DeleteTopicState("with.config")], timeout_ms=30_000
            ),
        )
        more = CreatePartitionsRequest.CreatePartitionsTopic("plain", 5, None)
        admin.ask(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest([more], 30_000))
        for kind, name, operation in ((3, "*", 1), (2, "plain", 4)):
            entry = DeleteAclsRequest.DeleteAclsFilter(kind, name, 3, None, None, operation, 1)
            admin.ask(ApiKey.DELETE_ACLS, DeleteAclsRequest([entry]))
    if cluster.brokers == 1:
        create_token(cluster, "--create", "--max-life-time-period", "-1")


def tree(client: Any, path: str = "/") -> dict[str, bytes]:
    """Path -> data of all persistent znodes that Kafka has written, by kazoo."""
    found: dict[str, bytes] = {}
    data, stat = client.get(path)
    if path.startswith("/zookeeper"):
        return found
    if not stat.ephemeralOwner:
        found[path] = data or b""
    for child in sorted(client.get_children(path)):
        found |= tree(client, f"{path.rstrip('/')}/{child}")
    return found


def create_token(cluster: OldCluster, *args: str) -> str:
    """Run Kafka 3.9.2's tool of delegation tokens as the user alice."""
    properties = cluster.folder / "alice.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="alice" password="{PASSWORD.decode()}";\n'
    )
    return run_old_tool(
        cluster.folder,
        "org.apache.kafka.tools.DelegationTokenCommand",
        *("--bootstrap-server", f"127.0.0.1:{cluster.sasl_ports[1]}"),
        *("--command-config", str(properties), *args),
    )
