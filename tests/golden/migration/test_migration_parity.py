"""The same ZooKeeper, migrated by Apache Kafka 3.9.2's controllers and read by us: equal records, equal znodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient

from kraft_node.metadata.loader import MetadataLoader
from kraft_node.metadata.log_batches import decode_batches
from kraft_node.migration.claim import ControllerClaim
from kraft_node.migration.entities import Entities, ImageReader, changed, of_image
from kraft_node.migration.passwords import PasswordEncoder
from kraft_node.migration.reading import MetadataReader
from kraft_node.migration.tree.values import MigrationValue, read_migration
from kraft_node.migration.writing import ZnodeWriter
from kraft_node.runtime.env import RealRng
from kraft_node.runtime.zookeeper import KazooSession
from kraft_node.testing.zookeeper import SimZooKeeper
from tests.compat.members import wait_for
from tests.compat.zookeeper_cluster import OldCluster
from tests.golden.migration.content import OVERRIDES, SECRET, change, fill, tree

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]


class Reference(NamedTuple):
    """What Apache Kafka did with a ZooKeeper."""

    before: dict[str, bytes]
    """The znodes before the migration."""
    ours: list[Any]
    """The records that we read from them."""
    migrated: dict[str, bytes]
    """The znodes once Apache Kafka writes to both worlds."""
    changed: dict[str, bytes]
    """The znodes after changes through Apache Kafka's brokers."""
    log: bytes
    """Apache Kafka's metadata log after that."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    cluster = OldCluster(tmp_path_factory.mktemp("migration"), overrides=OVERRIDES)
    client = None
    try:
        cluster.start()
        fill(cluster)
        client = KazooClient(cluster.zookeeper.address)
        client.start()
        before = tree(client)
        session = KazooSession(cluster.zookeeper.address, session_ms=18_000, connect_ms=18_000)
        rng = RealRng()
        reader = MetadataReader(session, PasswordEncoder(SECRET, rng), rng)
        ours = [record for batch in reader.batches() for record in batch]
        session.close()
        cluster.start_controllers()
        wait_for("dual writes", lambda: "to DUAL_WRITE" in cluster.nodes[3001].log.read_text())
        migrated = tree(client)
        change(cluster)
        wait_for("the last change in ZooKeeper", lambda: len(client.get_children("/delegation_token/tokens")) == 2)
        yield Reference(before, ours, migrated, tree(client), cluster.metadata_log(3001))
    except BaseException:
        print(cluster.tails())
        raise
    finally:
        if client is not None:
            client.stop()
            client.close()
        cluster.stop()


def records_of(log: bytes) -> list[tuple[int, int, Any]]:
    """(offset, epoch, record) of a metadata log."""
    return [(offset, batch.epoch, record) for batch in decode_batches(log) for offset, record in batch.records]


NOT_FROM_ZOOKEEPER = {"NoOpRecord", "BrokerRegistrationChangeRecord"}
"""What a controller may write between two batches of the migration: a broker is unfenced by its next heartbeat."""


def migration_of(log: bytes) -> list[Any]:
    """The records that Apache Kafka's controller read from ZooKeeper."""
    found: list[Any] = []
    inside = False
    for _, _, record in records_of(log):
        kind = type(record).__name__
        if kind == "BeginTransactionRecord":
            inside = record.name == "ZK Migration"
        elif kind == "ZkMigrationStateRecord" and inside:
            return found
        elif inside and kind not in NOT_FROM_ZOOKEEPER:
            found.append(record)
    raise AssertionError("no migration in this log")


def comparable(records: list[Any]) -> list[str]:
    """The records without what is random, in any order: Kafka's sets have none."""
    found = []
    for record in records:
        text = repr(record)
        if type(record).__name__ == "AccessControlEntryRecord":
            text = text.replace(repr(record.id), "id")
        if type(record).__name__ == "ClientQuotaRecord":
            entity = sorted((part.entity_type, part.entity_name) for part in record.entity)
            text = f"quota {entity} {record.key} {record.value} {record.remove}"
        found.append(text)
    return sorted(found)


def test_our_reader_makes_the_records_that_apache_kafka_makes(reference: Reference) -> None:
    ours, theirs = comparable(reference.ours), comparable(migration_of(reference.log))
    assert (set(ours) - set(theirs), set(theirs) - set(ours)) == (set(), set())
    assert ours == theirs
    kinds = {type(record).__name__ for record in reference.ours}
    assert kinds == {
        "TopicRecord", "PartitionRecord", "ConfigRecord", "ClientQuotaRecord", "UserScramCredentialRecord",
        "ProducerIdsRecord", "AccessControlEntryRecord", "DelegationTokenRecord",
    }  # fmt: skip


PER_BATCH_CHANGES = ("/config/changes/", "/kafka-acl-changes/", "/kafka-acl-extended-changes/")
"""Their numbers differ; what they say must not."""


def replayed(reference: Reference, *, from_znodes: dict[str, bytes]) -> SimZooKeeper:
    """A ZooKeeper with these znodes, after our writer has followed Apache Kafka's metadata log from there."""
    servers = SimZooKeeper()
    fill_model(servers, from_znodes)
    servers.put("/controller_epoch", b"2")
    start = read_migration(
        "/migration",
        from_znodes.get(
            "/migration",
            b'{"version":0,"kraft_controller_id":3001,'
            b'"kraft_controller_epoch":1,"kraft_metadata_offset":-1,"kraft_metadata_epoch":-1}',
        ),
    )
    servers.put("/migration", b"")
    epoch_version, migration_version = (servers.nodes[path].version for path in ("/controller_epoch", "/migration"))
    session = servers.session()
    writer = ZnodeWriter(
        session, ControllerClaim(1, epoch_version, migration_version, start), PasswordEncoder(SECRET, RealRng())
    )
    loader = MetadataLoader()
    is_synchronized = False
    for batch in decode_batches(reference.log):
        loader.apply(batch.records, batch.epoch, 0)
        delta = loader.image.take_delta()
        if not batch.records or loader.image.offset < max(start.offset, 0) or loader.image.zk_migration_state != 1:
            continue
        entities = changed(delta, loader.image)
        if not is_synchronized:
            entities = of_image(loader.image)
            entities.update(writer.existing())
            is_synchronized = True
        value = MigrationValue(3001, 1, loader.image.offset, batch.epoch)
        reader = ImageReader(loader.image)
        for part in entities.parts(3):
            writer.write(reader.wanted(part), None)
        writer.write(reader.wanted(Entities()), value)
    return servers


def fill_model(servers: SimZooKeeper, znodes: dict[str, bytes]) -> None:
    for path, data in znodes.items():
        if path != "/":
            servers.put(path, data)


def meaning(path: str, data: bytes) -> Any:
    """The content of a znode without times and random bytes."""
    if path.startswith(("/kafka-acl/", "/kafka-acl-extended/")) and data:
        return sorted(json.dumps(entry, sort_keys=True) for entry in json.loads(data)["acls"])
    if path.startswith("/config/brokers/1"):
        values = json.loads(data)["config"]
        passwords = PasswordEncoder(SECRET, RealRng())
        return {key: passwords.decoded(path, key, value) for key, value in values.items()}
    if path in {"/controller", "/controller_epoch"}:
        return None
    return json.loads(data) if data.startswith(b"{") else data


def compared(znodes: dict[str, bytes]) -> dict[str, Any]:
    return {
        path: meaning(path, data)
        for path, data in znodes.items()
        if path != "/" and not path.startswith((*PER_BATCH_CHANGES, "/delegation_token/token_changes/"))
    }


def notified(znodes: dict[str, bytes], before: dict[str, bytes]) -> list[tuple[str, bytes]]:
    """What brokers were told since then: (folder, content)."""
    return sorted(
        (path.rpartition("/")[0], data)
        for path, data in znodes.items()
        if path.startswith(PER_BATCH_CHANGES) and path not in before
    )


NOT_REMOVED_BY_APACHE = ("/config/ips/127.0.0.2", "/config/users/<default>/clients/<default>")
"""Apache Kafka 3.9.2 leaves a quota in ZooKeeper if its last value is removed during the migration."""


def test_our_writer_leaves_the_znodes_that_apache_kafka_leaves(reference: Reference) -> None:
    servers = replayed(reference, from_znodes=reference.migrated)
    ours, theirs = compared(servers.data()), compared(reference.changed)
    for path in NOT_REMOVED_BY_APACHE:
        assert ours[path] == {"version": 1, "config": {}}
        assert theirs[path]["config"]
        del ours[path], theirs[path]
    reached = [one["/migration"].pop("kraft_metadata_offset") for one in (ours, theirs)]
    assert reached[0] >= reached[1]
    assert ours == theirs


def test_our_writer_tells_brokers_what_apache_kafka_tells_them(reference: Reference) -> None:
    before = dict(reference.migrated)
    servers = replayed(reference, from_znodes=before)
    removed = [
        ("/config/changes", b'{"version":2,"entity_path":"%s"}' % path.removeprefix("/config/").encode())
        for path in NOT_REMOVED_BY_APACHE
    ]
    assert notified(servers.data(), before) == sorted([*notified(reference.changed, before), *removed])


def test_our_writer_changes_nothing_in_a_zookeeper_that_was_just_migrated(reference: Reference) -> None:
    at = json.loads(reference.migrated["/migration"])["kraft_metadata_offset"]
    loader = MetadataLoader()
    loader.apply([(offset, record) for offset, _, record in records_of(reference.log) if offset <= at], 1, 0)
    servers = SimZooKeeper()
    fill_model(servers, reference.migrated)
    writer = ZnodeWriter(
        servers.session(), ControllerClaim(1, 0, 0, MigrationValue()), PasswordEncoder(SECRET, RealRng())
    )
    entities = of_image(loader.image)
    entities.update(writer.existing())
    assert sum(writer.write(ImageReader(loader.image).wanted(part), None) for part in entities.parts(4)) == 0
