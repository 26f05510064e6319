"""`sweep doctor --tier login`: on this machine, and on a real Slurm with things that are wrong."""

import json
import threading

import pytest

from bench_workloads.checks.reading import output, read_all
from tests.support import driving
from tests.support.clients import made_client

SITE = "gpu: cpu\ngpus_per_node: 2\npilot_time: 10m\n"


def login(tmp_path, *more, site=SITE, env=None, code=0):
    (tmp_path / "site.yaml").write_text(site)
    arguments = ("doctor", "--tier", "login", "--site", tmp_path / "site.yaml", "--dir", tmp_path / "d", "--json")
    done = driving.run(*arguments, *more, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    return {row["check"]: row for row in json.loads(done.stdout)["results"]}


def test_this_machine(tmp_path):
    found = login(tmp_path, "--executor", "local", env={"NCCL_ALGO": "Ring"})
    assert {"shared files", "room", "torch", "logout", "NCCL variables"} == set(found)
    assert found["shared files"]["verdict"] in ("ok", "warning")
    assert found["room"]["verdict"] == "ok"
    assert "NCCL_ALGO=Ring (shell)" in found["NCCL variables"]["found"]
    assert found["NCCL variables"]["verdict"] == "warning"
    assert "torch" in found["torch"]["found"]
    assert not (tmp_path / "d").exists(), "a check leaves nothing"


def test_the_table_and_the_summary(tmp_path):
    (tmp_path / "site.yaml").write_text(SITE)
    done = driving.run(
        "doctor", "--tier", "login", "--site", tmp_path / "site.yaml", "--executor", "local", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert {"check", "verdict", "remedy"} <= set(done.stdout.split("\n")[0].split())
    assert "site: fit" in done.stderr


def test_what_hangs_and_what_raises_is_unreadable():
    ended = threading.Event()

    def function(name):
        return {"slow": ended.wait, "broken": lambda: 1 / 0, "fine": lambda: 3}[name]

    found = read_all(["slow", "broken", "fine"], 0.3, function)
    ended.set()
    assert found["slow"]["error"] == "no answer within 0.3 s"
    assert found["broken"]["error"].startswith("ZeroDivisionError")
    assert found["fine"] == {"value": 3}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", "sacctmgr: exit 3"),
        ("echo 'sacctmgr: error: slurm_persist_conn_open' >&2; exit 1", "sacctmgr: error: slurm_persist_conn_open"),
        ("sleep 5", "sacctmgr did not answer within 0.3 s"),
        ("", "sacctmgr cannot be run: Exec format error"),  # as a broken installation leaves
        (None, "sacctmgr is not installed here"),
    ],
)
def test_a_command_that_fails_hangs_or_is_missing_is_reported_without_our_exception(
    tmp_path, monkeypatch, script, words
):
    if script:
        made_client(tmp_path / "sacctmgr", script)
    elif script is not None:
        (tmp_path / "sacctmgr").touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if script else str(tmp_path))
    found = read_all(["reader"], find=lambda _: lambda: output(["sacctmgr", "show", "qos"], 0.3))
    assert found["reader"]["error"] == words


@pytest.mark.slurm
def test_a_healthy_cluster(tmp_path, slurm_cluster):
    found = login(tmp_path, "--executor", "slurm", env=slurm_cluster.env)
    wrong = {n: r for n, r in found.items() if r["verdict"] not in ("ok", "warning", "unknown")}
    assert not wrong
    assert found["controller"]["verdict"] == "ok"
    assert found["partition"]["found"].startswith("main: 8 nodes, up")
    assert found["accounting"]["found"] == "accounting_storage/slurmdbd"
    assert found["a pilot is accepted"]["verdict"] == "ok"
    assert found["KillWait"]["verdict"] == "warning", "5 s here"


@pytest.mark.slurm
def test_a_wrong_partition_and_a_drained_node(tmp_path, slurm_cluster):
    slurm_cluster.drain("n3", "bad GPU")
    try:
        site = SITE + "partition: nowhere\n"
        found = login(tmp_path, "--executor", "slurm", site=site, env=slurm_cluster.env, code=1)
    finally:
        slurm_cluster.resume("n3")
    assert found["partition"]["verdict"] == "unknown"
    assert found["a pilot is accepted"]["verdict"] == "below floor"
    assert "partition" in found["a pilot is accepted"]["found"].lower()
    assert found["drained nodes"]["found"] == "n3: drained, bad GPU"


@pytest.mark.slurm
def test_a_controller_that_does_not_answer(tmp_path, slurm_cluster):
    with slurm_cluster.slurmctld_frozen():
        found = login(tmp_path, "--executor", "slurm", env=slurm_cluster.env)
    assert {found[name]["verdict"] for name in ("partition", "KillWait", "drained nodes")} == {"unknown"}
    assert found["controller"]["verdict"] in ("unknown", "below floor")
    assert found["room"]["verdict"] == "ok"


@pytest.mark.slurm
def test_without_accounting(tmp_path, slurm_cluster_no_accounting):
    found = login(tmp_path, "--executor", "slurm", env=slurm_cluster_no_accounting.env)
    assert found["accounting"]["verdict"] == "warning"
    assert not [row for row in found.values() if "Error" in row["found"]], "the reason alone, not our exception"
