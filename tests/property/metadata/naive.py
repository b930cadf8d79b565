"""Random metadata records that fit one another, and a simple slow model of the state after them.

The model shares only the records' field names with the product: plain dictionaries, copied freely.
"""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from kraft_protocol.wire import stored

NAMES = [f"topic-{number}" for number in range(6)]


class Naive:
    """The state after all records so far, as dictionaries."""

    def __init__(self) -> None:
        self.features: dict[str, int] = {}
        self.brokers: dict[int, dict[str, Any]] = {}
        self.controllers: dict[int, bytes] = {}
        self.topics: dict[bytes, tuple[str, dict[int, dict[str, Any]]]] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.quotas: dict[Any, dict[str, float]] = {}
        self.next_producer_id = 0
        self.acls: dict[bytes, str] = {}
        self.scram: dict[tuple[int, str], int] = {}
        self.tokens: dict[str, str] = {}

    def copy(self) -> Naive:
        return copy.deepcopy(self)

    def replay(self, record: Any) -> None:
        getattr(self, "on_" + type(record).__name__)(record)

    def on_FeatureLevelRecord(self, r: Any) -> None:  # noqa: N802
        self.features.pop(r.name, None)
        if r.feature_level:
            self.features[r.name] = r.feature_level

    def on_RegisterBrokerRecord(self, r: Any) -> None:  # noqa: N802
        self.brokers[r.broker_id] = {
            "epoch": r.broker_epoch,
            "fenced": r.fenced,
            "stopping": r.in_controlled_shutdown,
            "dirs": list(r.log_dirs),
            "rack": r.rack,
        }

    def on_BrokerRegistrationChangeRecord(self, r: Any) -> None:  # noqa: N802
        broker = self.brokers[r.broker_id]
        if r.fenced:
            broker["fenced"] = r.fenced == 1
        if r.in_controlled_shutdown:
            broker["stopping"] = True
        if r.log_dirs:
            broker["dirs"] = list(r.log_dirs)

    def on_UnregisterBrokerRecord(self, r: Any) -> None:  # noqa: N802
        del self.brokers[r.broker_id]

    def on_RegisterControllerRecord(self, r: Any) -> None:  # noqa: N802
        self.controllers[r.controller_id] = r.incarnation_id

    def on_TopicRecord(self, r: Any) -> None:  # noqa: N802
        self.topics[r.topic_id] = (r.name, {})

    def on_RemoveTopicRecord(self, r: Any) -> None:  # noqa: N802
        name, _ = self.topics.pop(r.topic_id)
        self.configs.pop((2, name), None)

    def on_PartitionRecord(self, r: Any) -> None:  # noqa: N802
        self.topics[r.topic_id][1][r.partition_id] = {
            "replicas": list(r.replicas),
            "isr": list(r.isr),
            "removing": list(r.removing_replicas),
            "adding": list(r.adding_replicas),
            "leader": r.leader,
            "leader_epoch": r.leader_epoch,
            "epoch": r.partition_epoch,
            "dirs": list(r.directories) or [bytes(16)] * len(r.replicas),
            "elr": list(r.eligible_leader_replicas or []),
            "last_elr": list(r.last_known_elr or []),
            "recovering": r.leader_recovery_state,
        }

    def on_PartitionChangeRecord(self, r: Any) -> None:  # noqa: N802
        partition = self.topics[r.topic_id][1][r.partition_id]
        partition["epoch"] += 1
        if r.leader != -2:
            partition["leader"] = r.leader
            partition["leader_epoch"] += 1
        if r.leader_recovery_state != -1:
            partition["recovering"] = r.leader_recovery_state
        for ours, theirs in {
            "replicas": r.replicas,
            "isr": r.isr,
            "removing": r.removing_replicas,
            "adding": r.adding_replicas,
            "elr": r.eligible_leader_replicas,
            "last_elr": r.last_known_elr,
            "dirs": r.directories,
        }.items():
            if theirs is not None:
                partition[ours] = list(theirs)

    def on_ClearElrRecord(self, r: Any) -> None:  # noqa: N802
        for name, partitions in self.topics.values():
            for partition in partitions.values():
                if r.topic_name in ("", name) and (partition["elr"] or partition["last_elr"]):
                    partition.update(elr=[], last_elr=[], epoch=partition["epoch"] + 1)

    def on_ConfigRecord(self, r: Any) -> None:  # noqa: N802
        values = self.configs.setdefault((r.resource_type, r.resource_name), {})
        values.pop(r.name, None)
        if r.value is not None:
            values[r.name] = r.value
        if not values:
            del self.configs[r.resource_type, r.resource_name]

    def on_ClientQuotaRecord(self, r: Any) -> None:  # noqa: N802
        entity = frozenset((e.entity_type, e.entity_name) for e in r.entity)
        values = self.quotas.setdefault(entity, {})
        values.pop(r.key, None)
        if not r.remove:
            values[r.key] = r.value
        if not values:
            del self.quotas[entity]

    def on_ProducerIdsRecord(self, r: Any) -> None:  # noqa: N802
        self.next_producer_id = r.next_producer_id

    def on_AccessControlEntryRecord(self, r: Any) -> None:  # noqa: N802
        self.acls[r.id] = r.principal

    def on_RemoveAccessControlEntryRecord(self, r: Any) -> None:  # noqa: N802
        del self.acls[r.id]

    def on_UserScramCredentialRecord(self, r: Any) -> None:  # noqa: N802
        self.scram[r.mechanism, r.name] = r.iterations

    def on_RemoveUserScramCredentialRecord(self, r: Any) -> None:  # noqa: N802
        self.scram.pop((r.mechanism, r.name), None)

    def on_DelegationTokenRecord(self, r: Any) -> None:  # noqa: N802
        self.tokens[r.token_id] = r.owner

    def on_RemoveDelegationTokenRecord(self, r: Any) -> None:  # noqa: N802
        self.tokens.pop(r.token_id, None)

    def on_NoOpRecord(self, r: Any) -> None:  # noqa: N802
        pass

    def dump(self) -> dict[str, Any]:
        return vars(self.copy())


def dump(view: Any) -> dict[str, Any]:
    """An image or overlay in the model's form, through its reading interface only."""
    topics = {}
    for topic in view.topics:
        assert view.topics.by_name(topic.name).id == topic.id
        assert len(list(topic.partitions())) == len(topic)
        topics[topic.id] = (topic.name, {number: _partition(state) for number, state in topic.partitions()})
    assert len(view.topics) == len(topics)
    assert view.topics.partition_count == sum(len(partitions) for _, partitions in topics.values())
    for section in (view.features, view.brokers, view.configs, view.quotas, view.acls, view.scram, view.tokens):
        assert len(section) == len(dict(section.items()))
        assert all(section.get(key) == value and key in section for key, value in section.items())
    return {
        "features": dict(view.features.items()),
        "brokers": {
            broker.id: {
                "epoch": broker.epoch,
                "fenced": broker.fenced,
                "stopping": broker.in_controlled_shutdown,
                "dirs": list(broker.directories),
                "rack": broker.rack,
            }
            for broker in view.brokers.values()
        },
        "controllers": {c.id: c.incarnation_id for c in view.controllers.values()},
        "topics": topics,
        "configs": {key: dict(values) for key, values in view.configs.items()},
        "quotas": {frozenset(entity): dict(values) for entity, values in view.quotas.items()},
        "next_producer_id": view.next_producer_id,
        "acls": {key: acl.principal for key, acl in view.acls.items()},
        "scram": {key: scram.iterations for key, scram in view.scram.items()},
        "tokens": {key: token.owner for key, token in view.tokens.items()},
    }


def _partition(state: Any) -> dict[str, Any]:
    return {
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "removing": list(state.removing),
        "adding": list(state.adding),
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "epoch": state.partition_epoch,
        "dirs": list(state.directories),
        "elr": list(state.elr),
        "last_elr": list(state.last_known_elr),
        "recovering": state.leader_recovering,
    }


class Stories:
    """Makes records that fit the model's state."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.model = Naive()

    def records(self, count: int) -> list[Any]:
        """The next records; the model has replayed them."""
        made = []
        kinds = [name for name in dir(self) if name.startswith("make_")]
        weights = [8 if "partition" in kind else 2 for kind in kinds]
        while len(made) < count:
            record = getattr(self, self.rng.choices(kinds, weights)[0])()
            if record is not None:
                self.model.replay(record)
                made.append(record)
        return made

    def _uuid(self) -> bytes:
        return self.rng.randbytes(16)

    def _brokers(self) -> list[int]:
        return self.rng.sample(range(8), self.rng.randint(1, 4))

    def _partition(self) -> tuple[bytes, int] | None:
        all_of_them = [(topic, number) for topic, (_, found) in self.model.topics.items() for number in found]
        return self.rng.choice(all_of_them) if all_of_them else None

    def make_feature(self) -> Any:
        name, level = self.rng.choice([("metadata.version", 30), ("group.version", 1), ("group.version", 0)])
        return stored.FeatureLevelRecord(name=name, feature_level=level)

    def make_broker(self) -> Any:
        r = stored.RegisterBrokerRecord
        return r(
            broker_id=self.rng.randrange(8),
            incarnation_id=self._uuid(),
            broker_epoch=self.rng.randrange(1000),
            end_points=[r.BrokerEndpoint("PLAINTEXT", "host", 9092, 0)],
            features=[r.BrokerFeature("metadata.version", 7, 30)],
            rack=self.rng.choice([None, "a"]),
            fenced=True,
            log_dirs=[self._uuid()],
        )

    def make_broker_change(self) -> Any:
        if not self.model.brokers:
            return None
        broker = self.rng.choice(list(self.model.brokers))
        return stored.BrokerRegistrationChangeRecord(
            broker_id=broker,
            broker_epoch=self.model.brokers[broker]["epoch"],
            fenced=self.rng.choice([-1, 0, 1]),
            in_controlled_shutdown=self.rng.choice([0, 1]),
            log_dirs=self.rng.choice([[], [self._uuid(), self._uuid()]]),
        )

    def make_broker_gone(self) -> Any:
        if not self.model.brokers or self.rng.random() < 0.7:
            return None
        broker = self.rng.choice(list(self.model.brokers))
        return stored.UnregisterBrokerRecord(broker_id=broker, broker_epoch=self.model.brokers[broker]["epoch"])

    def make_controller(self) -> Any:
        return stored.RegisterControllerRecord(controller_id=self.rng.randrange(3), incarnation_id=self._uuid())

    def make_topic(self) -> Any:
        free = set(NAMES) - {name for name, _ in self.model.topics.values()}
        return stored.TopicRecord(name=self.rng.choice(sorted(free)), topic_id=self._uuid()) if free else None

    def make_topic_gone(self) -> Any:
        if not self.model.topics or self.rng.random() < 0.6:
            return None
        return stored.RemoveTopicRecord(topic_id=self.rng.choice(list(self.model.topics)))

    def make_partition(self) -> Any:
        if not self.model.topics:
            return None
        topic = self.rng.choice(list(self.model.topics))
        replicas = self._brokers()
        elr = self.rng.choice([None, replicas[:1]])
        return stored.PartitionRecord(
            partition_id=len(self.model.topics[topic][1]),
            topic_id=topic,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=self.rng.choice([[], [self._uuid() for _ in replicas]]),
            eligible_leader_replicas=elr,
        )

    def make_partition_change(self) -> Any:
        where = self._partition()
        if where is None:
            return None
        record = stored.PartitionChangeRecord(topic_id=where[0], partition_id=where[1])
        if self.rng.random() < 0.5:
            record.isr = self._brokers()
        if self.rng.random() < 0.5:
            record.leader = self.rng.choice([-1, 0, 3])
        if self.rng.random() < 0.2:
            record.replicas = self._brokers()
            record.directories = [self._uuid() for _ in record.replicas]
            record.adding_replicas = self.rng.choice([[], [7]])
            record.removing_replicas = self.rng.choice([[], [6]])
        if self.rng.random() < 0.2:
            record.eligible_leader_replicas = self.rng.choice([[], [5]])
            record.last_known_elr = self.rng.choice([[], [4]])
            record.leader_recovery_state = self.rng.choice([0, 1])
        return record

    def make_elr_clearing(self) -> Any:
        names = ["", *(name for name, _ in self.model.topics.values())]
        return stored.ClearElrRecord(topic_name=self.rng.choice(names)) if self.rng.random() < 0.3 else None

    def make_config(self) -> Any:
        names = [name for name, _ in self.model.topics.values()]
        kind, resource = self.rng.choice([(2, self.rng.choice(names)), (4, "1")]) if names else (4, "")
        value = self.rng.choice([None, "1", "2"])
        key = self.rng.choice(["retention.ms", "segment.bytes"])
        return stored.ConfigRecord(resource_type=kind, resource_name=resource, name=key, value=value)

    def make_quota(self) -> Any:
        entity = [("user", self.rng.choice([None, "ann"])), ("client-id", "x")][: self.rng.randint(1, 2)]
        self.rng.shuffle(entity)
        return stored.ClientQuotaRecord(
            entity=[stored.ClientQuotaRecord.EntityData(*pair) for pair in entity],
            key=self.rng.choice(["producer_byte_rate", "consumer_byte_rate"]),
            value=float(self.rng.randrange(100)),
            remove=self.rng.random() < 0.3,
        )

    def make_producer_ids(self) -> Any:
        return stored.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=self.rng.randrange(10**6))

    def make_acl(self) -> Any:
        if self.model.acls and self.rng.random() < 0.4:
            return stored.RemoveAccessControlEntryRecord(id=self.rng.choice(list(self.model.acls)))
        principal = f"User:{self.rng.randrange(9)}"
        return stored.AccessControlEntryRecord(id=self._uuid(), resource_name="t", principal=principal, host="*")

    def make_scram(self) -> Any:
        name = self.rng.choice(["ann", "bob"])
        if self.rng.random() < 0.3:
            return stored.RemoveUserScramCredentialRecord(name=name, mechanism=1)
        return stored.UserScramCredentialRecord(name=name, mechanism=1, iterations=4096 + self.rng.randrange(9))

    def make_token(self) -> Any:
        token = self.rng.choice(["t1", "t2"])
        if self.rng.random() < 0.3:
            return stored.RemoveDelegationTokenRecord(token_id=token)
        return stored.DelegationTokenRecord(owner="User:ann", requester="User:bob", token_id=token)

    def make_noop(self) -> Any:
        return stored.NoOpRecord()
