"""Finds which configuration keys the node reads, and writes docs/configuration.md.

    python -m tools.config_docs [--check]

A key of `server.properties` acts in three cases. Its name is a string in the node's sources (outside the definitions).
`NodeConfig` has a property for it that the sources use. Or it is the default or a bound of a key of topics or groups
that the log or the broker reads. The list goes to `base/config/read_keys.py`. With `--check` nothing is written: exit
code 1 if a file would change.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from kraft_node.base.config import effects, read_keys
from kraft_node.base.config.definitions import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    GROUP_SYNONYMS,
    TOPIC,
    TOPIC_SYNONYMS,
    ConfigKey,
)
from kraft_node.base.config.group import bounds
from kraft_node.base.config.topic import attribute
from kraft_protocol.configs.kafka import KAFKA_VERSION
from kraft_protocol.configs.own import OWN_DEFAULTS

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "node" / "src" / "kraft_node"
PROTOCOL = ROOT / "protocol" / "src" / "kraft_protocol"
SHARED = [*(PROTOCOL / "sasl").rglob("*.py"), *(PROTOCOL / "tls").rglob("*.py"), PROTOCOL / "configs" / "providers.py"]
"""Sources of the protocol package that read keys for the node."""

READ_KEYS_FILE = SOURCES / "base" / "config" / "read_keys.py"
PAGE = ROOT / "docs" / "configuration.md"

# Attribute of NodeConfig -> the keys behind it.
PROPERTIES = {
    "node_id": ("node.id", "broker.id"),
    "is_broker": ("process.roles",),
    "is_controller": ("process.roles",),
    "rack": ("broker.rack",),
    "log_dirs": ("log.dirs", "log.dir"),
    "metadata_log_dir": ("metadata.log.dir",),
    "all_dirs": ("log.dirs", "log.dir", "metadata.log.dir"),
    "listeners": ("listeners", "listener.security.protocol.map"),
    "broker_listeners": ("listeners", "listener.security.protocol.map", "controller.listener.names"),
    "controller_listeners": ("listeners", "controller.listener.names"),
    "controller_listener_names": ("controller.listener.names",),
    "advertised_broker_listeners": ("advertised.listeners",),
    "advertised_controller_listeners": ("advertised.listeners",),
    "inter_broker_listener_name": ("inter.broker.listener.name", "security.inter.broker.protocol"),
    "voters": ("controller.quorum.voters",),
    "bootstrap_servers": ("controller.quorum.bootstrap.servers",),
}
# Properties of TopicConfig -> the topic keys behind them.
TOPIC_PROPERTIES = {
    "compact": "cleanup.policy",
    "delete": "cleanup.policy",
    "log_append_time": "message.timestamp.type",
    "segment_size": "segment.bytes",
}
# The storage tools and the start read configuration keys, too, so their keys count.
LEFT_OUT = ("base/config", "cli/local.py", "testing")


def source_text() -> str:
    """The node's sources in one string, without the configuration package itself."""
    files = sorted(p for p in SOURCES.rglob("*.py") if not p.relative_to(SOURCES).as_posix().startswith(LEFT_OUT))
    files += sorted(SHARED)
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def topic_keys_read(text: str) -> set[str]:
    """The topic keys that the node reads, by its sources `text`."""
    attributes = set(re.findall(r"\.([a-z_]+)\b", text))
    found = {name for name in TOPIC if attribute(name) in attributes or f'"{name}"' in text}
    return found | {key for name, key in TOPIC_PROPERTIES.items() if re.search(rf"config\.{name}\b", text)}


def group_keys_read(text: str) -> set[str]:
    """The group keys that the node reads, by its sources `text`."""
    return {name for name in GROUP if f'"{name}"' in text}


def broker_keys_read(text: str) -> set[str]:
    """The keys of `server.properties` that the node reads, by its sources `text`."""
    named = {*effects.UNSAFE_TO_IGNORE}
    quoted = set(re.findall(r'"([a-z][a-z0-9.]+)"', text))
    found = {name for name in BROKER if name in quoted and name not in named}
    for own, keys in PROPERTIES.items():
        if re.search(rf"\.{own}\b", text):
            found.update(keys)
    for topic in topic_keys_read(text):
        found.update(name for name, _ in TOPIC_SYNONYMS.get(topic, ()))
    of_groups = group_keys_read(text)
    found.update(GROUP_SYNONYMS[name] for name in of_groups)
    for name, least, most in bounds():
        if name in of_groups:
            found |= {least, most}
    return found


def read_keys_module(broker: Iterable[str], topic: Iterable[str]) -> str:
    """The source of the module `read_keys`."""

    def rows(names: Iterable[str]) -> str:
        return "".join(f'        "{name}",\n' for name in sorted(names))

    return (
        '"""The keys that the node reads. Written by `python -m tools.config_docs`: do not edit."""\n\n'
        "from __future__ import annotations\n\nfrom typing import Final\n\n"
        f"READ_KEYS: Final = frozenset(\n    {{\n{rows(broker)}    }}\n)\n"
        '"""Keys of `server.properties`."""\n\n'
        f"READ_TOPIC_KEYS: Final = frozenset(\n    {{\n{rows(topic)}    }}\n)\n"
        '"""Keys of topics."""\n'
    )


HEAD = """# Configuration

A node reads Apache Kafka's `server.properties` (`kafka-server-start FILE [--override KEY=VALUE]…`). It knows the type,
default and range of every key of Kafka {version}. If a value is invalid, the node does not start and names the key and
the value. The node reports keys that Kafka does not have once, and ignores them. As in Kafka, `kafka-configs.sh`
changes values at run time: for a broker, for all brokers, for topics, groups and client metrics.

Values may have variables (`config.providers`), as in `ssl.key.password=${{env:KEY_PASSWORD}}`. Kafka's
`EnvVarConfigProvider`, `FileConfigProvider` and `DirectoryConfigProvider` give their values, with their parameters.
Command lines read them in `--command-config`, too.

`python -m tools.config_docs` generates this page. A key acts if the node reads it. All other keys are checked, stored
and described as in Kafka, and have no effect for the reason given.

"""


OWN_MEANINGS = {
    "http.listener": ("`host:port` of `/metrics` (Prometheus), `/livez`, `/readyz` and `/status`; empty: not served"),
    "config.revision": "a word that `/status` repeats, so that an operator knows which file the process read",
    "quorum.empty.disk.guard": (
        "A static voter without a quorum-state file neither votes nor campaigns until it has certainly caught up."
        " The first election of a new quorum waits for all voters. `false`: as in Kafka, where a voter that lost"
        " its disk can make the quorum lose records"
    ),
    "broker.session.closed.timeout.ms": (
        "If a broker's connection to the active controller closes, the broker must send a heartbeat over another"
        " connection within this time. Otherwise it is fenced. Empty: a quarter of `broker.heartbeat.interval.ms` for"
        " our brokers, which do so at once, and 1.5 times as long as the interval for others. `0`:"
        " `broker.session.timeout.ms`, as in Kafka"
    ),
    "broker.session.replace.on.restart": (
        "A restarted broker that registers a log directory of its previous process holds that directory's lock,"
        " so it replaces the registration at once. `false`: it waits until the previous session expires, as in"
        " Kafka"
    ),
    "stray.log.delete.delay.ms": (
        "At start, a log of a deleted topic, or a log that is assigned to another broker, is set aside. It is"
        " removed after this time (KIP-516). `-1`: never, as in Kafka"
    ),
    "broker.heartbeat.timeout.ms": (
        "If no controller acknowledges a broker's heartbeats for this time, the broker refuses clients with a"
        " retriable error until a heartbeat is acknowledged (KIP-343). Empty: twice `broker.session.timeout.ms`."
        " `0`: never, as in Kafka"
    ),
    "zookeeper.metadata.migration.enable": (
        "On controllers: migrate the metadata of a ZooKeeper cluster (KIP-866). `false` on all of them afterwards"
        " finishes the migration. The keys of ZooKeeper have the names and defaults of Kafka 3.9"
    ),
    "zookeeper.connect": "ZooKeeper's servers, `host:port,host:port/chroot`, for a controller that migrates",
    "zookeeper.session.timeout.ms": "The session of the controller at ZooKeeper ends if it is silent for so long",
    "zookeeper.connection.timeout.ms": (
        "How long the controller tries to reach ZooKeeper before it tries again. Empty: `zookeeper.session.timeout.ms`"
    ),
    "zookeeper.set.acl": (
        "Whether the controller makes znodes that only it and the brokers may change; it must reach ZooKeeper"
        " with a certificate of its own (`zookeeper.ssl.keystore.location`) with the brokers' name, or by SASL"
        " (`zookeeper.sasl.jaas.config`) as the brokers' user"
    ),
    "zookeeper.sasl.jaas.config": (
        "The login module with which the controller authenticates to ZooKeeper by SASL: the brokers' section"
        " `Client` without its name and braces. ZooKeeper's `DigestLoginModule`, or `Krb5LoginModule`, which"
        " needs the extra `gssapi`"
    ),
    "zookeeper.ssl.client.enable": "Whether the controller reaches ZooKeeper over TLS",
    "zookeeper.ssl.truststore.location": "A PEM file with the authorities that sign ZooKeeper's certificates",
    "zookeeper.ssl.keystore.location": "A PEM file with the controller's certificate and key for ZooKeeper",
    "zookeeper.ssl.endpoint.identification.algorithm": (
        "`HTTPS`: ZooKeeper's certificate must have the name of the server. Empty: any name of a trusted authority"
    ),
    "password.encoder.secret": "The secret with which brokers have encrypted passwords in ZooKeeper",
}
"""What our own keys mean."""


def own_section() -> str:
    """The section of the page on our own keys."""
    rows = "".join(
        f"| `{name}` | {default or 'empty'} | {OWN_MEANINGS[name]} |\n" for name, default in OWN_DEFAULTS.items()
    )
    return f"## Keys of our own\n\n| key | default | what it does |\n|-|-|-|\n{rows}\n"


def refused_section() -> str:
    """The section of the page on keys that stop the start."""
    rows = "".join(f"| `{name}` | {harm} |\n" for name, (_, harm) in effects.UNSAFE_TO_IGNORE.items())
    return (
        "## Refused\n\nA node does not start if one of these keys is set. It does not support them, and ignoring them "
        f"would be unsafe.\n\n| key | if ignored |\n|-|-|\n{rows}\n"
    )


def _default(key: ConfigKey) -> str:
    if key.required:
        return "required"
    text = key.default_text
    if text is None:
        return "none"
    return f"`{text}`" if text else "empty"


def broker_section() -> str:
    """The sections of the page on broker keys: keys that act, and keys without effect by reason."""
    keys = [key for name, key in BROKER.items() if effects.reason(name) is None]
    out = [f"## Keys that act ({len(keys)} of {len(BROKER)})\n\n"]
    out.append("| key | type | default | changes at run time |\n|-|-|-|-|\n")
    for key in keys:
        mode = "no" if key.update_mode == "read-only" else key.update_mode
        if key.name in effects.READ_ONCE:
            mode = f"at the next start (Kafka: {mode})"
        out.append(f"| `{key.name}` | {key.kind} | {_default(key)} | {mode} |\n")
    out.append("\n## Keys without effect\n")
    by_reason: dict[str, list[str]] = {}
    for name in BROKER:
        why = effects.reason(name)
        if why is not None:
            by_reason.setdefault(why, []).append(name)
    for why, names in by_reason.items():
        out.append(f"\n{why[0].upper()}{why[1:]}:\n\n" + "".join(f"- `{name}`\n" for name in names))
    return "".join(out) + "\n"


def topic_section() -> str:
    """The section of the page on topic keys."""
    out = ["## Topic keys\n\n| key | default | default comes from | acts |\n|-|-|-|-|\n"]
    for name, key in TOPIC.items():
        if key.internal:
            continue
        source = ", ".join(f"`{broker}`" for broker, _ in TOPIC_SYNONYMS.get(name, ())) or "-"
        why = "yes"
        if name not in read_keys.READ_TOPIC_KEYS:
            why = "no: " + next(text for pattern, text in effects.WITHOUT_EFFECT if fnmatchcase(name, pattern))
        out.append(f"| `{name}` | {_default(key)} | {source} | {why} |\n")
    return "".join(out)


def other_section() -> str:
    """Keys of groups and client metrics; a test checks that no key of client metrics is read."""
    read = group_keys_read(source_text())
    used, groups = (", ".join(f"`{name}`" for name in GROUP if (name in read) is acts) for acts in (True, False))
    metrics = ", ".join(f"`{name}`" for name in CLIENT_METRICS)
    return (
        "\n## Group keys\n\nThe node knows all of Kafka's group keys, checks them against the broker's bounds, stores "
        f"and describes them. It uses those of consumer groups (KIP-848): {used}.\n\nThe others have no effect, "
        f"because share and streams groups are not implemented: {groups}.\n\n"
        "## Client metrics keys\n\nStored and described. "
        f"They have no effect, because the node asks no client for metrics: {metrics}.\n"
    )


def page() -> str:
    """The text of docs/configuration.md."""
    sections = (own_section, refused_section, broker_section, topic_section, other_section)
    return HEAD.format(version=KAFKA_VERSION) + "".join(section() for section in sections)


def _write(path: Path, text: str, *, check: bool) -> bool:
    """Write `text` unless the file has it already or `check` is set. Returns whether the file was up to date."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return True
    if check:
        print(f"{path.relative_to(ROOT)} is out of date: run python -m tools.config_docs")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)} written")
    return False


def main() -> int:
    """Write or check the page and `read_keys`. Returns 1 with `--check` if a file would change."""
    parser = argparse.ArgumentParser(prog="config_docs", description="Write docs/configuration.md.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    text = source_text()
    current = _write(READ_KEYS_FILE, read_keys_module(broker_keys_read(text), topic_keys_read(text)), check=args.check)
    if not current and not args.check:
        importlib.reload(read_keys)
        importlib.reload(effects)
    current &= _write(PAGE, page(), check=args.check)
    return 0 if current or not args.check else 1


if __name__ == "__main__":
    sys.exit(main())
