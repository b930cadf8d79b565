"""`kraftcluster migrate start`: the files that it writes, and what it refuses."""

from __future__ import annotations

import importlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraft_cli.kraftcluster import main
from kraft_protocol.configs.properties import format_properties, parse_properties

START: Any = importlib.import_module("kraft_cli.migration.start")
MAP = "listener.security.protocol.map"
VERSION = "inter.broker.protocol.version"
KEY = "zookeeper.metadata.migration.enable"
CONTROLLERS = ("--controller", "3001@c1:9093", "--controller", "3002@c1:9094", "--controller", "3003@c2:9093")


def broker(number: int, endpoint: str = "EXTERNAL", **configs: str) -> dict[str, Any]:
    """A broker of a survey; `configs` with _ for dots are not defaults."""
    chosen = {name.replace("_", "."): value for name, value in configs.items()}
    return {
        "id": number,
        "endpoints": [f"{endpoint}://b{number}:9092"],
        "isLive": True,
        "problem": None,
        "configs": {VERSION: "3.9-IV0", MAP: f"{endpoint}:SASL_SSL", **chosen},
        "chosen": sorted(chosen),
    }


class Stage:
    """The command with a survey that a test gives."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.out = folder / "files"
        self.survey: dict[str, Any] = {"clusterId": "abc", "brokers": [broker(1), broker(2)], "findings": []}
        monkeypatch.setattr(START, "run_survey", lambda *_, **__: self.survey)

    def run(self, *words: str, controllers: tuple[str, ...] = CONTROLLERS) -> Result:
        fixed = ["migrate", "start", "--zookeeper", "z:2181/kafka", "--out", str(self.out), "--json"]
        return CliRunner().invoke(main, [*fixed, *controllers, *words])

    def started(self, *words: str) -> Any:
        done = self.run(*words)
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    def refused(self, *words: str, controllers: tuple[str, ...] = CONTROLLERS, code: int = 2) -> str:
        """The message; nothing was written."""
        done = self.run(*words, controllers=controllers)
        assert (done.exit_code, type(done.exception)) == (code, SystemExit), done.output
        assert not self.out.exists()
        return done.output

    def properties(self, number: int, **values: str) -> tuple[str, str]:
        """The option that names the configuration file of a broker."""
        path = self.folder / f"server-{number}.properties"
        own = {"broker.id": str(number), "zookeeper.connect": "z:2181/kafka"}
        path.write_text(format_properties({**own, **{name.replace("_", "."): value for name, value in values.items()}}))
        return "--broker-properties", str(path)

    def file(self, name: str) -> dict[str, str]:
        return parse_properties((self.out / f"{name}.properties").read_text())


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_each_controller_and_each_broker_gets_its_files(stage: Stage) -> None:
    found = stage.started()
    names = [Path(one["file"]).name for one in found["files"]]
    controllers = [f"controller-{number}.properties" for number in (3001, 3002, 3003)]
    brokers = [f"broker-{number}-{kind}.properties" for number in (1, 2) for kind in ("migrating", "kraft")]
    assert names == [*controllers, *brokers]
    assert {stat.S_IMODE(path.stat().st_mode) for path in stage.out.iterdir()} == {0o600}
    controller = stage.file("controller-3002")
    assert controller["controller.quorum.voters"] == "3001@c1:9093,3002@c1:9094,3003@c2:9093"
    assert (controller["node.id"], controller["listeners"]) == ("3002", "CONTROLLER://c1:9094")
    assert (controller[KEY], controller["zookeeper.connect"]) == ("true", "z:2181/kafka")
    assert stage.file("broker-2-migrating")["broker.id"] == "2"
    assert "status c1:9100 c1:9101 c2:9100" in found["next"][3]


def test_controllers_on_one_host_have_ports_and_folders_of_their_own(stage: Stage) -> None:
    stage.started("--http-port", "9200", "--log-dir", "/d")
    found = [stage.file(f"controller-{number}") for number in (3001, 3002, 3003)]
    assert [one["http.listener"] for one in found] == ["c1:9200", "c1:9201", "c2:9200"]
    assert [one["log.dirs"] for one in found] == ["/d-3001", "/d-3002", "/d"]


def test_a_second_run_writes_what_the_first_did_not_reach(stage: Stage) -> None:
    first = stage.started()
    (stage.out / "broker-2-kraft.properties").unlink()
    assert stage.started() == first
    assert stage.file("broker-2-kraft")["node.id"] == "2"


def test_no_file_is_written_while_one_has_another_content(stage: Stage) -> None:
    stage.started()
    edited = stage.out / "controller-3001.properties"
    edited.write_text("edited=true\n")
    (stage.out / "broker-1-kraft.properties").unlink()
    done = stage.run()
    assert done.exit_code == 3
    assert f"{edited} exists with another content" in done.output
    assert edited.read_text() == "edited=true\n"
    assert not (stage.out / "broker-1-kraft.properties").exists()


def test_each_broker_keeps_the_security_protocols_of_its_own_listeners(stage: Stage) -> None:
    """Every broker got the map of the first: a listener with SASL_SSL could become one without any check."""
    stage.survey["brokers"] = [broker(1, **{MAP: "EXTERNAL:PLAINTEXT"}), broker(2, **{MAP: "EXTERNAL:SASL_SSL"})]
    stage.started()
    for kind in ("migrating", "kraft"):
        assert stage.file(f"broker-1-{kind}")[MAP] == "EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
        assert stage.file(f"broker-2-{kind}")[MAP] == "EXTERNAL:SASL_SSL,CONTROLLER:PLAINTEXT"


def test_the_map_in_the_file_of_a_broker_counts(stage: Stage) -> None:
    stage.started(*stage.properties(2, **{MAP: "EXTERNAL:SSL,INTERNAL:SASL_SSL"}), "--protocol", "SSL")
    assert stage.file("broker-2-migrating")[MAP] == "EXTERNAL:SSL,INTERNAL:SASL_SSL,CONTROLLER:SSL"


def test_a_listener_of_a_broker_cannot_be_the_listener_of_the_controllers(stage: Stage) -> None:
    """CONTROLLER is a usual name of control.plane.listener.name, and got the protocol of the controllers' listener."""
    stage.survey["brokers"][1]["endpoints"].append("CONTROLLER://b2:9099")
    assert "--listener CONTROLLER: broker 2 has a listener of this name" in stage.refused()
    assert stage.run("--listener", "QUORUM").exit_code == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x", "--controller x: expected ID@HOST:PORT"),
        ("3001@c1", "--controller 3001@c1: expected ID@HOST:PORT"),
        ("3001@:9093", "--controller 3001@:9093: expected ID@HOST:PORT"),
        ("-1@c1:9093", "--controller -1@c1:9093: expected ID@HOST:PORT"),
        ("3001@c1:0", "--controller 3001@c1:0: expected ID@HOST:PORT"),
        ("3001@c1:65536", "--controller 3001@c1:65536: expected ID@HOST:PORT"),
        ("\u00b2@c1:9093", "expected ID@HOST:PORT"),
        ("2@c1:9093", "--controller 2: broker 2 has this id"),
    ],
)
def test_a_wrong_controller_is_refused(stage: Stage, name: str, words: str) -> None:
    assert words in stage.refused(controllers=("--controller", name))


def test_an_id_of_two_controllers_is_refused(stage: Stage) -> None:
    twice = ("--controller", "3001@c1:9093", "--controller", "3001@c2:9093")
    assert "--controller 3001: the id is given twice" in stage.refused(controllers=twice)


def test_an_unknown_security_protocol_is_refused(stage: Stage) -> None:
    assert "'TLS' is not one of" in stage.refused("--protocol", "TLS")


def test_nothing_is_written_while_something_blocks_the_migration(stage: Stage) -> None:
    blocker = {"kind": "blocker", "subject": "broker 2", "reason": "it is offline", "fix": "start it"}
    stage.survey["findings"] = [blocker, blocker]
    assert "2 blockers, the first is broker 2: it is offline" in stage.refused(code=3)


def test_files_of_brokers_must_name_brokers_of_the_cluster(stage: Stage) -> None:
    nameless = stage.folder / "nameless.properties"
    nameless.write_text("zookeeper.connect=z\n")
    message = stage.refused("--broker-properties", str(nameless))
    assert f"{nameless}: broker.id is missing" in message
    assert "broker 9 is not in this cluster" in stage.refused(*stage.properties(9))


def test_the_file_of_a_broker_becomes_one_without_zookeeper(stage: Stage) -> None:
    authorizer = "kafka.security.authorizer.AclAuthorizer"
    stage.survey["brokers"] = [broker(1, authorizer_class_name=authorizer)]
    given = {
        "authorizer_class_name": authorizer,
        "super_users": "User:admin",
        "password_encoder_secret": "s3cret",
        "broker_id_generation_enable": "false",
        "inter_broker_protocol_version": "3.9",
        "zookeeper_session_timeout_ms": "9000",
        "log_retention_hours": "5",
        "ssl_keystore_location": "/k",
    }
    found = stage.started(*stage.properties(1, **given))
    assert [one["todo"] for one in found["files"]] == [[]] * 5
    without = stage.file("broker-1-kraft")
    assert not [key for key in without if key.startswith(("zookeeper.", "broker.id", VERSION, "password."))]
    assert (without["process.roles"], without["node.id"], without["log.retention.hours"]) == ("broker", "1", "5")
    assert without["authorizer.class.name"] == "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    migrating = stage.file("broker-1-migrating")
    assert (migrating["zookeeper.session.timeout.ms"], migrating[KEY]) == ("9000", "true")
    assert migrating["authorizer.class.name"] == authorizer
    controller = stage.file("controller-3001")
    assert (controller["super.users"], controller["password.encoder.secret"]) == ("User:admin", "s3cret")
    assert controller["ssl.keystore.location"] == "/k"


def test_without_the_files_of_brokers_the_command_says_what_to_add(stage: Stage) -> None:
    chosen = {
        "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
        "password_encoder_secret": "",
        "security_inter_broker_protocol": "SASL_SSL",
    }
    stage.survey["brokers"] = [broker(1, **chosen)]
    controller, *_, migrating, without = [one["todo"] for one in stage.started()["files"]]
    assert [todo.split(" ")[0] for todo in controller] == ["password.encoder.secret", "super.users", "ssl.*"]
    assert "to the configuration of broker 1" in migrating[0]
    assert "all zookeeper.* from the configuration of broker 1" in without[0]


@pytest.mark.parametrize(
    ("version", "release"), [("3.9-IV0", "3.9-IV0"), ("3.7-IV1", "3.7-IV1"), ("3.9", "3.9"), ("3.6.1", "3.6")]
)
def test_controllers_are_formatted_with_the_version_of_the_brokers(stage: Stage, version: str, release: str) -> None:
    """With another level of the same release, brokers cannot register."""
    stage.survey["brokers"][0]["configs"][VERSION] = version
    assert f"--cluster-id=abc -r {release} -c " in stage.started()["next"][1]


def test_a_file_for_the_connection_to_zookeeper_is_copied_to_the_controllers(stage: Stage) -> None:
    tls = stage.folder / "tls.properties"
    tls.write_text("zookeeper.ssl.client.enable=true\n")
    stage.started("--zk-tls-config-file", str(tls))
    assert stage.file("controller-3001")["zookeeper.ssl.client.enable"] == "true"
    assert "zookeeper.ssl.client.enable" not in stage.file("broker-1-kraft")
