"""Site detection: parsers against captured output of Slurm 22.05.8, and the whole against a real cluster."""

import os
from pathlib import Path

import pytest
import yaml

from sweep.errors import SweepError
from sweep.inputs.detect import (
    CPU_RANKS,
    NodeGroup,
    cluster_site,
    detect_site,
    other_partitions,
    parse_config,
    parse_gres,
    parse_sinfo,
    parse_time,
    slurm_answers,
    widest_group,
)
from sweep.inputs.site import parse_site
from tests.support.slurm.cluster import Cluster

CAPTURED = Path(__file__).parent / "captured"
SINFO = (CAPTURED / "sinfo-22.05.8.txt").read_text()
CONFIG = (CAPTURED / "scontrol-show-config-22.05.8.txt").read_text()


def test_sinfo() -> None:
    groups = {group.partition: group for group in parse_sinfo(SINFO)}
    assert set(groups) == {"main", "short", "closed"}
    main = NodeGroup(partition="main", default=True, up=True, time_limit_s=None, nodes=4, cpus=8, gpus=2, gpu_type="")
    assert groups["main"] == main
    assert (groups["short"].time_limit_s, groups["short"].default) == (300, False)
    assert (groups["closed"].time_limit_s, groups["closed"].up) == (129_600, False)
    assert widest_group(groups.values()) == main
    (group,) = parse_sinfo("not a line\nlogin|up|1:00|3|64+|gpu:h100:8(S:0-1)\n")
    assert (group.nodes, group.cpus, group.gpus, group.gpu_type) == (3, 64, 8, "h100")


@pytest.mark.parametrize(("lines", "nodes"), [
    ("few|up|1:00|2|8|gpu:8\nmany|up|1:00|5|8|gpu:4", 5), ("few|up|1:00|2|8|gpu:8\ndefault*|up|1:00|3|8|(null)", 3),
    ("none|up|1:00|0|8|(null)\ndown*|down|1:00|9|8|(null)", None), ("a|up|1:00|2|8|(null)\nb|up|1:00|3|8|(null)", 3),
])  # fmt: skip
def test_of_several_groups_the_default_partition_counts_and_most_gpus(lines: str, nodes: int | None) -> None:
    found = widest_group(parse_sinfo(lines))
    assert (found and found.nodes) == nodes


def test_config() -> None:
    config = parse_config(CONFIG)
    assert config["ClusterName"] == "sweep10240"
    assert config["MaxJobCount"] == "5000"
    assert config["InteractiveStepOptions"] == "--interactive --preserve-env --pty $SHELL"
    assert "Epilog" not in config, "(null) is nothing"


def test_a_gpu_kind_that_is_not_reported_must_be_stated_by_the_user() -> None:
    group = widest_group(parse_sinfo(SINFO))
    assert group is not None
    with pytest.raises(SweepError, match=r"2 GPUs per node, but their kind .*write it in a site file: one of v100"):
        cluster_site(group, {}, [])


@pytest.mark.slurm
def test_a_real_cluster(slurm_or_skip: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(nodes=3, gpus_per_node=0, accounting=False, extra="PartitionName=x Nodes=n1 MaxTime=10") as cluster:
        cluster.use(monkeypatch)
        monkeypatch.setenv("SINFO_FORMAT", "%N")
        assert slurm_answers()
        site = parse_site(yaml.safe_dump(dict(detect_site("slurm"))), "detected")
        assert (site.partition, site.gpu, site.gpus_per_node, site.max_nodes) == ("main", "cpu", 8, 3)
        cluster.stop_slurmctld()
        assert not slurm_answers()
        with pytest.raises(SweepError, match="sinfo does not answer"):
            detect_site("slurm")


def commands(monkeypatch: pytest.MonkeyPatch, folder: Path, **outputs: str | None) -> None:
    """A search path of these commands alone; each prints its text, and fails where that is None."""
    for name, text in outputs.items():
        path = folder / name
        path.write_text("#!/bin/sh\nexit 1\n" if text is None else f"#!/bin/sh\nprintf '%s\\n' '{text}'\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize(("outputs", "up"), [
    ({"sbatch": "", "scontrol": "Slurmctld(primary) at login is UP"}, True),
    ({"sbatch": "", "scontrol": "Slurmctld(primary) at login is DOWN"}, False),
    ({"sbatch": "", "scontrol": None}, False), ({"sbatch": ""}, False),
    ({"scontrol": "Slurmctld(primary) at login is UP"}, False),
])  # fmt: skip
def test_slurm_answers_where_sbatch_is_installed_and_the_controller_is_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outputs: dict[str, str | None], up: bool
) -> None:
    commands(monkeypatch, tmp_path, **outputs)
    assert slurm_answers() is up


def test_what_slurm_prints_in_another_encoding_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A message of an administrator, in Latin-1."""
    commands(monkeypatch, tmp_path, sbatch="", scontrol="")
    (tmp_path / "scontrol").write_bytes(b"#!/bin/sh\nprintf 'Slurmctld(primary) at n\374rnberg is UP\\n'\n")
    assert slurm_answers()


@pytest.mark.parametrize(("names", "stated", "kind", "ranks"), [
    ("NVIDIA H100 80GB HBM3\nNVIDIA H100 80GB HBM3", None, "h100", 2), ("NVIDIA H100 80GB HBM3", "a100", "a100", 1),
    ("", "cpu", "cpu", None), (None, None, "cpu", None),
])  # fmt: skip
def test_a_machine_has_the_gpus_that_it_lists_and_else_its_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: str | None, stated: str | None, kind: str, ranks: int | None
) -> None:
    commands(monkeypatch, tmp_path, **{"nvidia-smi": names})
    monkeypatch.setattr(os, "cpu_count", lambda: None if stated else 2 * CPU_RANKS)
    wanted: dict[str, object] = {"name": "local", "gpu": kind}
    if ranks is None:
        wanted |= {"gpus_per_node": 1 if stated else CPU_RANKS}
    else:
        wanted |= {"gpus_per_node": ranks, "max_nodes": 1, "max_local_ranks": ranks}
    assert detect_site("local", stated) == wanted


@pytest.mark.parametrize(("kind", "per_node"), [("h100", 8), ("gb200", 4)])
def test_a_kind_of_gpu_that_is_not_here_is_a_clusters_elsewhere_or_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, per_node: int
) -> None:
    commands(monkeypatch, tmp_path)
    found = detect_site(None, kind)
    assert (found["name"], found["gpu"], found["gpus_per_node"]) == ("cluster", kind, per_node)
    with pytest.raises(SweepError, match=f"this machine has no {kind}"):
        detect_site("local", kind)


LINES = "cpu*|up|1:00|2|4|(null)\nfast|up|infinite|3|64|gpu:8\nold|down|infinite|9|64|gpu:v100:8"


def test_a_cluster_is_detected_from_what_its_commands_print(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands(monkeypatch, tmp_path, sinfo=LINES.replace("cpu*", "cpu"), scontrol="ClusterName = my cluster ")
    found = detect_site("slurm", "h100")
    assert found == {
        "name": "my-cluster", "partition": "fast", "gpu": "h100", "gpus_per_node": 8,
        "max_nodes": 3, "pilot_time": 4 * 3600,
    }  # fmt: skip
    assert [group.partition for group in other_partitions("fast")] == ["cpu"], "of those that are up"
    commands(monkeypatch, tmp_path, sinfo=LINES, scontrol=None)
    found = detect_site("slurm")
    assert (found["name"], found["gpu"], found["gpus_per_node"], found["pilot_time"]) == ("cluster", "cpu", 4, 60)


def test_a_cluster_without_a_partition_that_is_up_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands(monkeypatch, tmp_path, sinfo="old|down|infinite|9|64|gpu:v100:8", scontrol=None)
    with pytest.raises(SweepError, match="no partition that is up"):
        detect_site("slurm")
    commands(monkeypatch, tmp_path, sinfo=None)
    assert other_partitions("any") == []
    with pytest.raises(SweepError, match="--executor local"):
        detect_site("slurm")


@pytest.mark.parametrize(("text", "count", "kind"), [
    ("gpu:8", 8, ""), ("gpu", 1, ""), ("gpu:h100", 1, "h100"), ("gpu:a100:2,gpu:h100:4", 6, "h100"),
    ("gpu:h100:2(S:0),gpu:h100:2(S:1),gpu:a100:3", 7, "h100"), ("gpu:a100:2,gpu:a100:2", 4, "a100"), ("shard:8", 0, ""),
    ("shard:gpu:8", 0, ""), ("(null)", 0, ""),
    ("gpu:nvidia_h100_80gb_hbm3:8(S:0-1),shard:8", 8, "nvidia_h100_80gb_hbm3"),
    ("gpu:a100:3(S:0,1),gpu:a30:1(S:1)", 4, "a100"),
])  # fmt: skip
def test_gpus_of_a_node_are_summed_and_their_type_is_the_most_numerous(text: str, count: int, kind: str) -> None:
    assert parse_gres(text) == (count, kind)


@pytest.mark.parametrize(("text", "seconds"), [
    ("30", None), ("5:07", 307), ("1:00:00", 3600), ("2-03:04:05", 2 * 86400 + 3 * 3600 + 4 * 60 + 5),
    ("infinite", None), ("n/a", None), ("2-01:00:00", 176_400), ("0:30", 30),
])  # fmt: skip
def test_slurms_times_are_days_hours_minutes_and_seconds(text: str, seconds: int | None) -> None:
    assert parse_time(text) == seconds
