"""Reader, writer and claim over a simulated ZooKeeper; `tests/golden/migration` compares them with Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.metadata.image import MetadataImage
from kraft_node.migration.claim import (
    ClaimError,
    ControllerClaim,
    claim,
    claimed_again,
    is_interrupted,
    read_progress,
    release,
    undo,
)
from kraft_node.migration.entities import Entities, ImageReader, changed, of_image
from kraft_node.migration.passwords import PasswordEncoder
from kraft_node.migration.reading import BATCH_RECORDS, MetadataReader
from kraft_node.migration.tree.values import MigrationValue, ZnodeError, read_topic
from kraft_node.migration.writing import ZnodeWriter
from kraft_node.migration.zookeeper import NoAnswerError, TransactionError
from kraft_node.runtime.env import RealRng
from kraft_node.testing.zookeeper import SimZooKeeper
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.stored import (
    AccessControlEntryRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
)

PASSWORDS = PasswordEncoder(None, RealRng())
KRAFT_EPOCH = 7


def topic_id(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def zookeeper() -> SimZooKeeper:
    servers = SimZooKeeper()
    servers.put("/controller_epoch", b"4")
    servers.put("/controller", b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}', owner=9)
    for path in ("/brokers/topics", "/config/topics", "/config/changes", "/admin/delete_topics"):
        servers.put(path)
    return servers


def topic(number: int, name: str, partitions: int = 1) -> list[Any]:
    return [
        TopicRecord(name, topic_id(number)),
        *(
            PartitionRecord(p, topic_id(number), [1, 2], [1, 2], [], [], leader=1, leader_epoch=0, partition_epoch=0)
            for p in range(partitions)
        ),
    ]


def image_of(records: list[Any]) -> MetadataImage:
    image = MetadataImage()
    for record in records:
        image.replay(record)
    image.take_delta()
    return image


def synchronized(servers: SimZooKeeper, image: MetadataImage) -> ZnodeWriter:
    """A writer whose ZooKeeper has everything of the image."""
    session = servers.session()
    writer = ZnodeWriter(session, claim(session, 3001, KRAFT_EPOCH, 0), PASSWORDS)
    entities = of_image(image)
    entities.update(writer.existing())
    writer.write(ImageReader(image).wanted(entities), MigrationValue(3001, KRAFT_EPOCH, 10, KRAFT_EPOCH))
    return writer


def follow(writer: ZnodeWriter, image: MetadataImage, *records: Any) -> int:
    for record in records:
        image.replay(record)
    entities = changed(image.take_delta(), image)
    return writer.write(ImageReader(image).wanted(entities), writer.claim.value._replace(offset=11))


def read(servers: SimZooKeeper) -> list[list[Any]]:
    return [*MetadataReader(servers.session(), PASSWORDS, RealRng()).batches()]


def test_what_was_written_is_read_again() -> None:
    servers = zookeeper()
    records = [
        *topic(1, "a", 3),
        *topic(2, "b"),
        ConfigRecord(2, "a", "retention.ms", "5"),
        ConfigRecord(4, "", "x", "y"),
    ]
    synchronized(servers, image_of(records))
    (batch,) = read(servers)
    assert sorted(map(repr, batch)) == sorted(map(repr, records))


def test_a_batch_has_whole_topics_and_at_least_its_size() -> None:
    servers = zookeeper()
    synchronized(servers, image_of([record for n in range(1, 5) for record in topic(n, f"t{n}", 90)]))
    batches = read(servers)
    assert [len(batch) for batch in batches] == [3 * 91, 91]
    assert len(batches[0]) >= BATCH_RECORDS


def test_topics_that_are_being_deleted_are_not_read_and_go_with_the_first_synchronization() -> None:
    servers = zookeeper()
    writer = synchronized(servers, image_of([*topic(1, "stays"), *topic(2, "goes")]))
    servers.put("/admin/delete_topics/goes")
    names = [record.name for batch in read(servers) for record in batch if isinstance(record, TopicRecord)]
    assert names == ["stays"]
    image = image_of(topic(1, "stays"))
    entities = of_image(image)
    entities.update(writer.existing())
    writer.write(ImageReader(image).wanted(entities), None)
    assert not [path for path in servers.data() if "goes" in path]


def test_a_partition_without_state_starts_with_all_its_replicas() -> None:
    servers = zookeeper()
    synchronized(servers, image_of(topic(1, "a")))
    servers.remove("/brokers/topics/a/partitions/0/state")
    partition = read(servers)[0][1]
    assert (partition.isr, partition.leader, partition.leader_epoch, partition.partition_epoch) == ([1, 2], 1, 0, 0)


def test_a_malformed_znode_ends_the_reading_with_its_path() -> None:
    servers = zookeeper()
    synchronized(servers, image_of(topic(1, "a")))
    servers.put("/brokers/topics/a", b"{}")
    with pytest.raises(ZnodeError, match=r"^znode /brokers/topics/a: the field topic_id is missing"):
        read(servers)


def test_a_topic_that_was_created_again_replaces_the_former_one() -> None:
    servers = zookeeper()
    image = image_of(topic(1, "a", 4))
    writer = synchronized(servers, image)
    follow(writer, image, RemoveTopicRecord(topic_id(1)), *topic(2, "a", 2))
    data = servers.data()
    assert read_topic("", data["/brokers/topics/a"]).topic_id == topic_id(2)
    assert "/brokers/topics/a/partitions/1/state" in data
    assert "/brokers/topics/a/partitions/2" not in data


def test_a_changed_partition_costs_one_operation() -> None:
    servers = zookeeper()
    image = image_of(topic(1, "a", 50))
    writer = synchronized(servers, image)
    assert follow(writer, image, PartitionChangeRecord(7, topic_id(1), isr=[1])) == 1
    state = servers.data()["/brokers/topics/a/partitions/7/state"]
    assert state == b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":5,"isr":[1]}'
    assert read_progress(servers.session()) == MigrationValue(3001, KRAFT_EPOCH, 11, KRAFT_EPOCH)


def test_a_znode_is_never_older_than_its_partition() -> None:
    """Its version was below the partition's epoch after two changes at once. A broker that had the epoch ignored the
    states that the controller with ZooKeeper sent after a migration went back, and replicas stayed out of sync."""
    servers = zookeeper()
    image = image_of([*topic(1, "a", 4), PartitionChangeRecord(3, topic_id(1), isr=[1])])
    writer = synchronized(servers, image)
    one, two = (PartitionChangeRecord(0, topic_id(1), isr=isr) for isr in ([1], [1, 2]))
    other = PartitionChangeRecord(1, topic_id(1), leader=2)
    assert follow(writer, image, one, two, other, PartitionChangeRecord(1, topic_id(1), isr=[2])) == 4
    created = [*topic(2, "b"), *(PartitionChangeRecord(0, topic_id(2), isr=isr) for isr in ([2], [1, 2]))]
    follow(writer, image, *created)
    epochs = {(t, n): state.partition_epoch for t in "ab" for n, state in image.topics.by_name(t).partitions()}  # type: ignore[union-attr]
    paths = [f"/brokers/topics/{name}/partitions/{number}/state" for name, number in epochs]
    versions = [znode.version for znode in servers.session().get(paths) if znode is not None]
    assert versions == [*epochs.values()] == [2, 2, 0, 1, 2]
    assert writer.write(ImageReader(image).wanted(of_image(image)), None) == 0


def test_a_large_topic_is_written_in_several_transactions_and_the_offset_moves_with_the_last() -> None:
    servers = zookeeper()
    image = image_of([])
    writer = synchronized(servers, image)
    seen: list[int] = []
    servers.on_commit = lambda *_: seen.append(read_progress(servers.session()).offset)  # type: ignore[union-attr]
    follow(writer, image, *topic(1, "large", 600))
    assert len(seen) > 2
    assert seen == [10] * (len(seen) - 1) + [11]


def test_a_write_may_be_repeated() -> None:
    servers = zookeeper()
    image = image_of([])
    writer = synchronized(servers, image)
    for record in topic(1, "a", 3):
        image.replay(record)
    wanted = ImageReader(image).wanted(Entities(topics={"a": None}))
    answers = iter([(True, True), (False, False)])
    servers.lose_next = lambda: next(answers)
    with pytest.raises(NoAnswerError):
        writer.write(wanted, None)
    servers.lose_next = lambda: (False, False)
    again = claimed_again(servers.session(), writer.claim)
    assert again is not None
    assert ZnodeWriter(servers.session(), again, PASSWORDS).write(wanted, None) == 0


def test_a_claim_makes_the_controller_persistent_and_raises_the_epoch() -> None:
    servers = zookeeper()
    held = claim(servers.session(), 3001, KRAFT_EPOCH, 77)
    data = servers.data()
    assert data["/controller"] == b'{"version":2,"brokerid":3001,"timestamp":"77","kraftControllerEpoch":7}'
    assert data["/controller_epoch"] == b"5"
    assert (held.epoch, held.epoch_version, held.migration_version) == (5, 1, 0)
    servers.expire(9)
    assert "/controller" in servers.data()


def test_a_later_claim_ends_the_writes_of_the_former_one() -> None:
    servers = zookeeper()
    image = image_of([])
    former = synchronized(servers, image)
    claim(servers.session(), 3002, KRAFT_EPOCH + 1, 0)
    with pytest.raises(TransactionError):
        follow(former, image, *topic(1, "late"))
    assert "/brokers/topics/late" not in servers.data()
    assert claimed_again(servers.session(), former.claim) is None


def test_a_controller_of_an_older_epoch_cannot_claim() -> None:
    servers = zookeeper()
    claim(servers.session(), 3002, KRAFT_EPOCH, 0)
    with pytest.raises(ClaimError, match="of epoch 7 has claimed ZooKeeper, this one is of epoch 6"):
        claim(servers.session(), 3001, KRAFT_EPOCH - 1, 0)


def test_a_zookeeper_without_any_controller_cannot_be_claimed() -> None:
    with pytest.raises(ClaimError, match="/controller_epoch does not exist"):
        claim(SimZooKeeper().session(), 3001, KRAFT_EPOCH, 0)


def test_an_undone_claim_leaves_zookeeper_to_its_brokers() -> None:
    servers = zookeeper()
    before = servers.data()
    session = servers.session()
    undo(session, claim(session, 3001, KRAFT_EPOCH, 0))
    after = servers.data()
    assert after.pop("/controller_epoch") == b"5"
    assert after == {path: data for path, data in before.items() if path not in {"/controller", "/controller_epoch"}}


def test_only_the_holder_undoes_a_claim() -> None:
    servers = zookeeper()
    former = claim(servers.session(), 3001, KRAFT_EPOCH, 0)
    claim(servers.session(), 3002, KRAFT_EPOCH + 1, 0)
    with pytest.raises(TransactionError):
        undo(servers.session(), former)
    assert isinstance(former, ControllerClaim)


@pytest.mark.parametrize(
    ("voters", "kraft_epoch", "offset", "expected"),
    [
        ({3001, 3002}, KRAFT_EPOCH + 1, -1, True),
        ({3001}, KRAFT_EPOCH, -1, True),  # an own claim whose answer was lost
        ({3002, 3003}, KRAFT_EPOCH + 1, -1, False),
        ({3001}, KRAFT_EPOCH - 1, -1, False),
        ({3001}, KRAFT_EPOCH + 1, 10, False),
    ],
)
def test_a_claim_of_this_quorum_without_a_migration_is_interrupted(
    voters: set[int], kraft_epoch: int, offset: int, expected: bool
) -> None:
    servers = zookeeper()
    session = servers.session()
    assert not is_interrupted(session, voters, kraft_epoch)
    writer = ZnodeWriter(session, claim(session, 3001, KRAFT_EPOCH, 0), PASSWORDS)
    if offset >= 0:
        writer.write(ImageReader(image_of([])).wanted(Entities()), MigrationValue(3001, KRAFT_EPOCH, offset, 7))
    assert is_interrupted(session, voters, kraft_epoch) is expected


def test_a_producer_block_that_was_never_given_out_is_read_and_written() -> None:
    servers = zookeeper()
    servers.put("/latest_producer_id_block")  # as a controller of Kafka 3.9 makes it at its start
    image = image_of(topic(1, "a"))
    synchronized(servers, image)
    assert "ProducerIdsRecord" not in {type(record).__name__ for batch in read(servers) for record in batch}
    image.replay(ProducerIdsRecord(1, 1, 1000))
    entities = changed(image.take_delta(), image)
    session = servers.session()
    writer = ZnodeWriter(session, claim(session, 3001, KRAFT_EPOCH, 0), PASSWORDS)
    writer.write(ImageReader(image).wanted(entities), MigrationValue(3001, KRAFT_EPOCH, 11, KRAFT_EPOCH))
    assert b'"block_end":"999"' in servers.data()["/latest_producer_id_block"]


def test_a_released_zookeeper_is_left_to_its_brokers_once() -> None:
    servers = zookeeper()
    session = servers.session()
    assert not release(session)
    claim(session, 3001, KRAFT_EPOCH, 0)
    assert release(session)
    assert {"/controller", "/migration"} & servers.data().keys() == set()
    assert not release(session)


def test_a_release_leaves_a_broker_the_controller() -> None:
    servers = zookeeper()
    session = servers.session()
    claim(session, 3001, KRAFT_EPOCH, 0)
    servers.put("/controller", b'{"version":2,"brokerid":2,"timestamp":"1","kraftControllerEpoch":-1}')
    assert release(session)
    assert "/controller" in servers.data()
    assert "/migration" not in servers.data()


def acl(number: int, name: str) -> AccessControlEntryRecord:
    """Read access to a group for everybody."""
    return AccessControlEntryRecord(topic_id(number), 3, name, 3, "User:*", "*", 3, 3)


def acls_read(servers: SimZooKeeper) -> list[str]:
    return sorted(r.resource_name for batch in read(servers) for r in batch if isinstance(r, AccessControlEntryRecord))


def test_acls_of_names_with_slashes_are_written_read_and_deleted() -> None:
    """Their empty parent was taken for a resource without valid ACLs: nothing was written any more, after a fail-over
    forever."""
    servers = zookeeper()
    image = image_of([])
    writer = synchronized(servers, image)
    follow(writer, image, acl(1, "team/app"))
    assert servers.data()["/kafka-acl/Group/team"] == b""
    follow(writer, image, acl(2, "team"))
    assert acls_read(servers) == ["team", "team/app"]
    follow(writer, image, RemoveAccessControlEntryRecord(topic_id(2)))
    assert acls_read(servers) == ["team/app"]
    follow(writer, image, RemoveAccessControlEntryRecord(topic_id(1)))
    assert "/kafka-acl/Group/team/app" not in servers.data()
    assert acls_read(servers) == []


def test_acls_of_names_with_slashes_that_are_gone_leave_zookeeper_with_the_first_synchronization() -> None:
    servers = zookeeper()
    writer = synchronized(servers, image_of([acl(1, "team/app")]))
    entities = of_image(image_of([]))
    entities.update(writer.existing())
    writer.write(ImageReader(image_of([])).wanted(entities), None)
    assert acls_read(servers) == []


@pytest.mark.parametrize("name", [".", "..", "a//b", "a/", "/a", "a\x01b"])
def test_acls_of_names_that_zookeeper_refuses_do_not_stop_the_others(name: str) -> None:
    servers = zookeeper()
    image = image_of([])
    writer = synchronized(servers, image)
    follow(writer, image, acl(1, name), acl(2, "other"))
    assert acls_read(servers) == ["other"]


def test_a_zookeeper_that_was_given_back_is_not_claimed_by_controllers_that_have_migrated_it() -> None:
    """Their claim would undo in ZooKeeper what brokers have changed since: topics, in-sync replicas, leader epochs."""
    servers = zookeeper()
    session = servers.session()
    claim(session, 3001, KRAFT_EPOCH, 0)
    assert claim(session, 3002, KRAFT_EPOCH + 1, 0, is_migrated=True).value.controller_id == 3002
    assert release(session)
    before = servers.data()
    with pytest.raises(ClaimError, match=r"/migration does not exist.* was given back"):
        claim(session, 3001, KRAFT_EPOCH + 2, 0, is_migrated=True)
    assert servers.data() == before
    claim(session, 3001, KRAFT_EPOCH + 2, 0)
