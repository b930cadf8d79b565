"""`kubectl kraft` over a kubectl with recorded answers: tables, requests, exit codes.

The resource was recorded from a real API server, in the middle of a roll with a voter behind. The kubectl keeps it in a
file, merges patches into it, and refuses patches of an older resourceVersion in the API server's words.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner, Result

from kraft_cli import commands
from kraft_cli.kubectl import complete, main

RECORDED = Path(__file__).parents[1] / "recorded" / "kraftcluster.json"

KUBECTL = """#!{python}
import json, sys
words = [word for word in sys.argv[1:] if not word.startswith(("--context=", "--namespace="))]
with open("{folder}/asked", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
resource = json.load(open("{folder}/resource.json"))
name = resource["metadata"]["name"]
def merge(old, new):
    for key, value in new.items():
        if isinstance(value, dict):
            merge(old.setdefault(key, {{}}), value)
        elif value is None:
            old.pop(key, None)
        else:
            old[key] = value
if words[:2] in (["get", "pods"], ["get", "crd"]):
    print(json.dumps({{"items": []}}))
elif words[0] == "get" and words[2:] == ["-o", "name"]:
    print("kraftcluster.kraftcluster.io/" + name)
elif words[0] in ("get", "patch") and words[2] != name:
    sys.exit('Error from server (NotFound): kraftclusters.kraftcluster.io "%s" not found' % words[2])
elif words[0] == "get":
    print(json.dumps(resource))
elif words[0] == "patch":
    body = json.loads(words[-1])
    version = body["metadata"].pop("resourceVersion", None) if "metadata" in body else None
    if version not in (None, resource["metadata"]["resourceVersion"]):
        sys.exit('Error from server (Conflict): Operation cannot be fulfilled on kraftclusters.kraftcluster.io "%s": '
                 "the object has been modified; please apply your changes to the latest version and try again" % name)
    merge(resource, body)
    resource["metadata"]["resourceVersion"] += "0"
    open("{folder}/resource.json", "w").write(json.dumps(resource))
elif words[0] == "logs":
    print("first line\\nsecond line")
elif words[0] == "top":
    print("smoke-1   5m   33Mi\\nsmoke-101   12m   41Mi")
"""


class Api:
    """The objects of the kubectl, and the requests to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write(json.loads(RECORDED.read_text()))
        program = folder / "kubectl"
        program.write_text(KUBECTL.format(python=sys.executable, folder=folder))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.program = program

    def write(self, resource: dict[str, Any]) -> None:
        """Write the file atomically: a program that watches may be reading it."""
        new = self.folder / "resource.json.new"
        new.write_text(json.dumps(resource))
        new.replace(self.folder / "resource.json")

    @property
    def resource(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "resource.json").read_text())
        return found

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        resource = self.resource
        change(resource)
        self.write(resource)

    @property
    def asked(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, words, env={"KUBECTL": str(self.program), "COLUMNS": "200"})


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)


def _condition(resource: dict[str, Any], kind: str, status: str, message: str = "") -> None:
    one = next(one for one in resource["status"]["conditions"] if one["type"] == kind)
    one.update(status=status, message=message)


def test_status_shows_quorum_brokers_and_blockers(api: Api) -> None:
    done = api.run("status", "smoke", "--context", "lab")
    assert done.exit_code == 0, "it is ready"
    lines = [line.rstrip() for line in done.output.splitlines()]
    assert lines[0].startswith("smoke  Ready  controllers 3/3  brokers 3/3")
    assert "  QuorumHealthy  VotersBehind: voter 2 of [1, 2, 3] behind or down" in lines
    assert any(line.startswith("  Degraded  QuorumAtRisk: voter 2 is behind or down: without 3") for line in lines)
    rows = [line.split() for line in lines]
    assert ["1", "leader", "Ready", "0", "0", "controllers", "smoke-1", "needs", "a", "restart:", "config"] in rows
    assert ["2", "voter", "Ready", "13", "0", "controllers", "smoke-2"] in rows
    assert ["101", "Ready", "0", "brokers", "smoke-101", "needs", "a", "restart:", "config"] in rows
    assert "Partitions  56  all in sync" in lines
    assert api.asked[0][0] == "--context=lab"


def test_preview_names_restarts_and_exits_with_1_if_there_are_any(api: Api) -> None:
    done = api.run("preview", "-o", "json")
    assert (done.exit_code, json.loads(done.output)["restarts"]) == (0, {}), done.output
    spec = api.resource["spec"] | {"replicas": 5}
    changed = {"kind": "KRaftCluster", "metadata": {"name": "smoke"}, "spec": spec}
    (api.folder / "changed.yaml").write_text(json.dumps(changed))
    done = api.run("preview", "-f", str(api.folder / "changed.yaml"))
    assert (done.exit_code, done.output) == (1, "pool brokers: 3 -> 5 nodes\n")
    (api.folder / "changed.yaml").write_text(json.dumps({**changed, "spec": {**spec, "replicas": "many"}}))
    done = api.run("preview", "-f", str(api.folder / "changed.yaml"))
    assert done.exit_code == 3
    assert "replicas" in done.output
    (api.folder / "changed.yaml").write_text(json.dumps({**changed, "metadata": {"name": "other"}}))
    assert api.run("preview", "-f", str(api.folder / "changed.yaml")).exit_code == 2


@pytest.mark.parametrize("text", ["a: [", "a: 2026-02-30", "kind: KRaftCluster", "{kind: KRaftCluster, metadata: [1]}"])
def test_preview_of_a_malformed_file_exits_with_2(api: Api, text: str) -> None:
    (api.folder / "changed.yaml").write_text(text)
    done = api.run("preview", "-f", str(api.folder / "changed.yaml"))
    assert done.exit_code == 2, done.output
    assert "changed.yaml" in done.output


def test_status_of_a_cluster_that_is_not_ready_exits_with_1(api: Api) -> None:
    api.change(lambda r: _condition(r, "Ready", "False", "voter 1: stops"))
    assert api.run("status").exit_code == 1
    assert json.loads(api.run("status", "-o", "json").output) == api.resource


def test_status_names_partitions_that_lag(api: Api) -> None:
    behind = {"total": 9, "underReplicated": 2, "underMinIsr": 1, "moving": 3, "named": ["t-1: in sync 1 of 1,2,3"]}
    api.change(lambda r: r["status"].update(partitions=behind))
    output = api.run("status").output
    assert "Partitions  9  2 under-replicated  1 under min ISR  3 moving" in output
    assert "  t-1: in sync 1 of 1,2,3" in output


def test_a_cluster_without_status_is_reported(api: Api) -> None:
    api.change(lambda resource: resource.pop("status"))
    for words, code in ((["status"], 1), (["plan"], 0)):
        answer = api.run(*words)
        assert answer.exit_code == code
        assert "does an operator run that watches its namespace?" in answer.output
        assert "nothing to do" not in answer.output
    answer = api.run("roll")
    assert (answer.exit_code, answer.output) == (1, "Error: smoke has no nodes yet\n")


def test_plan_shows_the_next_steps(api: Api) -> None:
    assert "later: Restart 101: config" in api.run("plan", "smoke").output
    assert json.loads(api.run("plan", "--json").output) == api.resource["status"]["plan"]


def test_a_missing_cluster_exits_with_4(api: Api) -> None:
    done = api.run("status", "nope")
    assert done.exit_code == 4
    assert 'kraftclusters.kraftcluster.io "nope" not found' in done.output
    assert api.run("logs", "77").exit_code == 2


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("pause", "paused", True),
        ("resume", "paused", False),
        ("hibernate", "hibernated", True),
        ("wake", "hibernated", False),
    ],
)
def test_flags_set_fields_of_the_specification(api: Api, words: str, field: str, value: bool) -> None:
    assert api.run(words, "smoke").exit_code == 0
    assert api.resource["spec"][field] is value


def test_approve_names_the_current_revision(api: Api) -> None:
    assert api.run("approve").exit_code == 0
    assert api.resource["metadata"]["annotations"]["kraftcluster.io/approve"] == api.resource["status"]["revision"]


def test_roll_writes_a_new_word_for_each_id_and_keeps_others(api: Api) -> None:
    api.change(lambda r: r["metadata"].update(annotations={"kraftcluster.io/roll": "2=old,101=older"}))
    assert api.run("roll", "101", "102", "--no-wait").exit_code == 0
    words = dict(word.split("=") for word in api.resource["metadata"]["annotations"]["kraftcluster.io/roll"].split(","))
    assert list(words) == ["2", "101", "102"]
    assert words["2"] == "old"
    assert words["101"] == words["102"] != "older"
    assert api.run("roll", "7", "--no-wait").exit_code == 2


def test_roll_waits_for_the_revision_and_the_end_of_restarts(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def time_goes_on(_seconds: float) -> None:
        looks.append(1)
        resource = api.resource
        if len(looks) == 2:
            resource["status"]["revision"] = "another"
        if len(looks) == 4:
            for node in resource["status"]["nodes"]:
                node["needsRestart"] = []
        api.write(resource)

    monkeypatch.setattr("kraft_cli.target.pause", time_goes_on)
    done = api.run("roll", "101")
    assert done.exit_code == 0, done.output
    assert len(looks) == 4


def test_rebalance_waits_until_its_request_is_done(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def time_goes_on(_seconds: float) -> None:
        word = api.resource["metadata"]["annotations"]["kraftcluster.io/rebalance"]
        api.change(lambda r: r["status"].update(balancedFor=word))

    assert api.run("rebalance", "--timeout", "0").exit_code == 1
    monkeypatch.setattr("kraft_cli.target.pause", time_goes_on)
    assert api.run("rebalance", "smoke").exit_code == 0


def test_a_time_out_exits_with_1_and_names_what_it_waits_for(api: Api) -> None:
    api.change(lambda r: r["status"].update(revision="another"))
    done = api.run("roll", "101", "--timeout", "0")
    assert done.exit_code == 1
    assert "not done in 0 s, it continues: the request was not read yet" in done.output


@pytest.mark.parametrize("words", [["replace", "2"], ["rebalance"]])
def test_a_time_out_in_a_paused_cluster_names_the_pause(api: Api, words: list[str]) -> None:
    def paused(resource: dict[str, Any]) -> None:
        _condition(resource, "Degraded", "False")
        _condition(resource, "Paused", "True", "spec.paused is set")

    api.change(paused)
    done = api.run(*words, "--timeout", "0")
    assert done.exit_code == 1
    assert "not done in 0 s, it continues: spec.paused is set" in done.output


def test_replace_sets_an_annotation_and_keeps_the_specification(api: Api) -> None:
    before = api.resource["spec"]
    done = api.run("replace", "2", "--new-id", "--accept", "MetadataPause", "--no-wait")
    assert done.exit_code == 0, done.output
    assert api.resource["spec"] == before, "Git would ask for it again"
    (name,) = re.findall(r"replacement (\S+) is requested", done.output)
    assert api.resource["metadata"]["annotations"][f"replace.kraftcluster.io/{name}"] == "2 NewId MetadataPause"


def test_a_refused_replacement_is_withdrawn_with_the_reason(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "replacement node-2-1 of node 2: voter 3 is behind or down"
    api.change(lambda r: _condition(r, "Degraded", "True", said))
    monkeypatch.setattr(commands, "REFUSED_S", 0.0)
    monkeypatch.setattr(commands, "_free_name", lambda *_: "node-2-1")
    done = api.run("replace", "2")
    assert done.exit_code == 3
    assert f"refused, and withdrawn: {said}" in done.output
    assert not [key for key in api.resource["metadata"].get("annotations", {}) if key.startswith("replace.")]


def test_roll_does_not_wait_for_nodes_that_wait_for_a_window(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def time_goes_on(_seconds: float) -> None:
        resource = api.resource
        resource["status"]["revision"] = "rolled"
        for node in resource["status"]["nodes"]:
            node["needsRestart"] = [] if node["id"] == 101 else ["config"]
        _condition(resource, "Paused", "True", "the next maintenance window opens tomorrow")
        api.write(resource)

    monkeypatch.setattr("kraft_cli.target.pause", time_goes_on)
    done = api.run("roll", "101", "--timeout", "5")
    assert done.exit_code == 0, done.output


def test_replace_does_not_wait_for_another_node_that_is_down(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def time_goes_on(_seconds: float) -> None:
        resource = api.resource
        (key,) = [key for key in resource["metadata"]["annotations"] if key.startswith("replace.")]
        item = {"name": key.partition("/")[2], "node": 2, "by": "EmptyDisk", "disk": 1, "done": True}
        resource["status"]["replacements"] = [item]
        for node in resource["status"]["nodes"]:
            node["needsRestart"] = []
            node["state"] = "Starting" if node["id"] == 103 else "Ready"
        _condition(resource, "Ready", "False", "broker 103: Unschedulable")
        api.write(resource)

    monkeypatch.setattr("kraft_cli.target.pause", time_goes_on)
    done = api.run("replace", "2", "--timeout", "5")
    assert done.exit_code == 0, done.output


def test_plan_names_a_node_that_only_kubernetes_can_start(api: Api) -> None:
    api.change(lambda r: r["status"].update(plan=[]))
    api.change(lambda r: _condition(r, "Progressing", "True", "broker 103: Unschedulable"))
    assert api.run("plan").output == "waits: broker 103: Unschedulable\n"


def test_replace_waits_until_the_replacement_is_done_and_all_have_restarted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = {"name": "node-2-1", "node": 2, "by": "EmptyDisk", "disk": 1, "done": True}
    api.change(lambda r: r["status"].update(replacements=[item]))
    looks: list[int] = []

    def time_goes_on(_seconds: float) -> None:
        looks.append(1)
        resource = api.resource
        if len(looks) == 1:
            (key,) = [key for key in resource["metadata"]["annotations"] if key.startswith("replace.")]
            name = key.partition("/")[2]
            assert name != item["name"], "a name that was used is not used again"
            resource["status"]["replacements"].append({**item, "name": name, "done": False})
        elif len(looks) == 2:
            resource["status"]["replacements"][-1]["done"] = True
        else:
            for node in resource["status"]["nodes"]:
                node["needsRestart"] = []
        api.write(resource)

    monkeypatch.setattr("kraft_cli.target.pause", time_goes_on)
    done = api.run("replace", "2")
    assert done.exit_code == 0, done.output
    assert re.search(r"replacement node-2-\d{12} is done", done.output)
    assert len(looks) == 3


def test_logs_and_top_run_kubectl(api: Api) -> None:
    assert api.run("logs", "101", "--tail", "5").output == "first line\nsecond line\n"
    assert api.asked[-1] == ["logs", "smoke-101", "--tail=5"]
    output = api.run("top").output
    assert ["101", "broker", "12m", "41Mi"] in [line.split() for line in output.splitlines()]
    assert {"node": "101", "role": "broker", "cpu": "12m", "memory": "41Mi"} in json.loads(
        api.run("top", "-o", "json").output
    )
    assert ["102", "broker"] in [line.split() for line in output.splitlines()], "not measured"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(api: Api, shell: str) -> None:
    assert "_KUBECTL_KRAFT_COMPLETE" in api.run("completion", shell).output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "status\tShow quorum, brokers, partitions"),
        (["st"], "status"),
        (["replace", "--acc"], "--accept"),
        (["replace", "--accept", ""], "MetadataPause"),
    ],
)
def test_kubectl_completes_the_words_after_kraft(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kubectl_complete-kraft", *words])
    complete()
    *lines, directive = capsys.readouterr().out.splitlines()
    assert directive == ":4", "no files"
    assert any(line.startswith(said) for line in lines), lines


COMPLAINTS = {
    "nobody answers": (
        'E1122 01:38:02.867625 2519 memcache.go:265] "Unhandled Error"\n'
        "The connection to the server localhost:8080 was refused - did you specify the right host or port?",
        4,
        "Error: The connection to the server localhost:8080 was refused",
    ),
    "no definitions": (
        'error: the server doesn\'t have a resource type "kraftclusters"',
        4,
        "Error: the server doesn't have a resource type \"kraftclusters\": the operator's definitions are",
    ),
    "no context": ('error: context "x" does not exist', 4, 'Error: context "x" does not exist'),
    "no right": (
        'Error from server (Forbidden): kraftclusters.kraftcluster.io "smoke" is forbidden: User "u" cannot get it',
        3,
        "Error: Error from server (Forbidden)",
    ),
    "anything": ("error: what?", 1, "Error: what?"),
}


@pytest.mark.parametrize("case", COMPLAINTS)
def test_an_error_of_kubectl_is_one_line_with_an_exit_code(api: Api, case: str) -> None:
    stderr, code, said = COMPLAINTS[case]
    api.program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit({stderr!r})\n")
    found = api.run("status")
    assert (found.exit_code, found.output.count("\n")) == (code, 1)
    assert found.output.startswith(said), found.output


@pytest.mark.parametrize("before", [True, False])
def test_the_namespace_may_precede_the_command(before: bool, api: Api) -> None:
    """`kubectl kraft -n ns status` was refused as an unknown option."""
    flags = ["-n", "there", "--context", "lab"]
    done = api.run(*flags, "status", "smoke") if before else api.run("status", "smoke", *flags)
    assert done.exit_code == 0, done.output
    assert {"--namespace=there", "--context=lab"} <= set(api.asked[0])
    both = api.run("-n", "one", "-c", "smoke", "status", "-n", "other")
    assert both.exit_code == 0
    assert "--namespace=other" in api.asked[-1], "the nearer one counts"


@pytest.mark.parametrize(
    "words", ["--context lab versions", "versions --context lab", "versions --context=lab withdraw"]
)
def test_versions_take_the_options_that_select_a_kubernetes_cluster(words: str, api: Api) -> None:
    """`kubectl kraft versions --context lab` was refused as an unknown option."""
    done = api.run(*words.split(), "--kubeconfig=file")
    assert done.exit_code != 2, done.output
    assert {"--context=lab", "--kubeconfig=file"} <= set(api.asked[0])


def test_the_nearer_of_two_contexts_of_versions_counts(api: Api) -> None:
    api.run("--context=far", "versions", "--context=near", "--kubeconfig=outer", "withdraw", "--kubeconfig=inner")
    assert {"--context=near", "--kubeconfig=inner"} <= set(api.asked[0])


@pytest.mark.parametrize("form", ["table", "json"])
def test_status_watched_through_a_pipe_prints_each_change(api: Api, form: str) -> None:
    words = [sys.executable, "-m", "kraft_cli.kubectl", "status", "--watch", "-o", form]
    environment = {**os.environ, "KUBECTL": str(api.program)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True) as watcher:
        try:
            assert watcher.stdout is not None
            _read_until(watcher.stdout, "smoke  Ready" if form == "table" else '"conditions"')
            api.change(lambda r: _condition(r, "Ready", "False", "voter 1 stops"))
            _read_until(watcher.stdout, "voter 1 stops")
        finally:
            watcher.kill()


def _read_until(lines: IO[str], text: str) -> None:
    assert any(text in line for line in lines), f"{text} is missing in the output"
