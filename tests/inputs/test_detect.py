"""Site detection: parsers against captured output of Slurm 22.05.8, and the whole against a real cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from sweep.errors import SweepError
from sweep.inputs.detect import (
    NodeGroup,
    cluster_site,
    detect_site,
    parse_config,
    parse_gpu_names,
    parse_gres,
    parse_sinfo,
    parse_time,
    slurm_answers,
    widest_group,
)
from sweep.inputs.site import parse_site
from sweep.physics.hardware import gpu_kind
from tests.support.slurm.cluster import Cluster

CAPTURED = Path(__file__).parent / "captured"
SINFO = (CAPTURED / "sinfo-22.05.8.txt").read_text()
CONFIG = (CAPTURED / "scontrol-show-config-22.05.8.txt").read_text()


def test_sinfo() -> None:
    groups = {group.partition: group for group in parse_sinfo(SINFO)}
    assert set(groups) == {"main", "short", "closed"}
    main = NodeGroup(
        partition="main",
        default=True,
        up=True,
        time_limit_s=None,
        nodes=4,
        cpus=8,
        memory_mb=16000,
        gpus=2,
        gpu_type="",
    )
    assert groups["main"] == main
    assert (groups["short"].time_limit_s, groups["short"].default) == (300, False)
    assert (groups["closed"].time_limit_s, groups["closed"].up) == (129_600, False)
    assert widest_group(groups.values()) == main


def test_the_widest_group_has_gpus() -> None:
    text = (
        "login*|up|1:00|2|64|1000|(null)\nlogin*|up|1:00|3|64+|1000+|gpu:h100:8(S:0-1)\nbig|up|1:00|99|8|1|gpu:a100:8\n"
    )
    group = widest_group(parse_sinfo(text))
    assert group is not None
    assert (group.partition, group.nodes, group.cpus, group.gpus, group.gpu_type) == ("login", 3, 64, 8, "h100")
    assert widest_group(parse_sinfo("a*|down|1:00|2|64|1000|(null)\n")) is None
    assert parse_sinfo("not a line\n") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(null)", (0, "")),
        ("gpu:2", (2, "")),
        ("gpu", (1, "")),
        ("gpu:h100:8(S:0-1)", (8, "h100")),
        ("gpu:nvidia_h100_80gb_hbm3:8(S:0-1),shard:8", (8, "nvidia_h100_80gb_hbm3")),
        ("gpu:a100:3(S:0,1),gpu:a30:1(S:1)", (4, "a100")),
        ("shard:gpu:8", (0, "")),
    ],
)
def test_gres(text: str, expected: tuple[int, str]) -> None:
    assert parse_gres(text) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("infinite", None), ("n/a", None), ("30:00", 1800), ("4:00:00", 14400), ("2-01:00:00", 176_400), ("0:30", 30)],
)
def test_time(text: str, seconds: int | None) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("nvidia_h200", "h200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("nvidia_a100-pcie-40gb", "a100-40gb"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("NVIDIA XH200", None),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("cpu", None),
        ("", None),
    ],
)
def test_gpu_kind(name: str, kind: str | None) -> None:
    assert gpu_kind([name]) == kind


def test_gpu_names() -> None:
    assert parse_gpu_names("NVIDIA H100 80GB HBM3\nNVIDIA H100 80GB HBM3\n\n") == ["NVIDIA H100 80GB HBM3"] * 2


def test_config() -> None:
    config = parse_config(CONFIG)
    assert config["ClusterName"] == "sweep10240"
    assert config["MaxJobCount"] == "5000"
    assert config["InteractiveStepOptions"] == "--interactive --preserve-env --pty $SHELL"
    assert "Epilog" not in config, "(null) is nothing"


def test_a_site_comes_of_it() -> None:
    group = widest_group(parse_sinfo(SINFO))
    assert group is not None
    facts = cluster_site(group, parse_config(CONFIG), ["NVIDIA H100 80GB HBM3"])
    site = parse_site(yaml.safe_dump(dict(facts)), "detected")
    assert (site.name, site.partition, site.gpu, site.gpus_per_node) == ("sweep10240", "main", "h100", 2)
    assert (site.max_nodes, site.cpus_per_node, site.pilot_time_s) == (4, 8, 4 * 3600)


def test_a_gpu_kind_that_is_not_reported_must_be_stated_by_the_user() -> None:
    group = widest_group(parse_sinfo(SINFO))
    assert group is not None
    with pytest.raises(SweepError, match=r"2 GPUs per node, but their kind .*write it in a site file: one of v100"):
        cluster_site(group, {}, [])


def test_this_machine_is_a_site() -> None:
    site = parse_site(yaml.safe_dump(dict(detect_site("local"))), "detected")
    assert site.cpus_per_node == os.cpu_count()
    assert site.gpus_per_node >= 1


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


def test_no_slurm_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not slurm_answers()
    with pytest.raises(SweepError, match="--executor local"):
        detect_site("slurm")
