"""Texts of real tools: their parsers, and the checks on them."""

import re
from pathlib import Path

import pytest

from sweep.checks.check import NodeReadings, Reading, Stated, Verdict, evaluate
from sweep.checks.fleet import evaluate_all, to_exclude
from sweep.checks.node import LINKS, NODE, SMI
from sweep.checks.tools import fabric, nvlinks

SAMPLES = Path(__file__).parent / "samples"
H100 = Stated(gpu="h100", gpus_per_node=2, nodes=2)


def sample(name):
    return (SAMPLES / name).read_text()


def named(name):
    (check,) = [check for check in NODE if check.name == name]
    return check


def finding(name, value, stated=H100):
    return evaluate(named(name), Reading(value=value), stated)


@pytest.mark.parametrize(("check", "words"), [
    ("ECC", "GPU 1: DRAM Uncorrectable 2"),
    ("remapped rows", "GPU 1: pending: reset the GPU"),
    ("throttling", "GPU 1: HW Slowdown, HW Thermal Slowdown"),
    ("PCIe width", "GPU 1: x8 of x16"),
    ("power cap", "GPU 1: 500 W of 700 W"),
    ("persistence", "GPU 1: off"),
    ("GPU memory in use", "GPU 1: 40210 MiB in use"),
    ("fabric", "GPU 1: fabric In Progress"),
])  # fmt: skip
def test_each_defect_of_a_gpu_is_found_and_no_other_gpu_is_named(check, words):
    found = finding(check, sample("nvidia-smi-q.h100.txt"))
    assert (found.found, found.verdict in (Verdict.BELOW_FLOOR, Verdict.WARNING)) == (words, True)


def test_a_healthy_gpu_passes_all():
    text = sample("nvidia-smi-q.h100.txt")
    alone = text[: text.index("GPU 00000000:2A")]
    stated = Stated(gpu="h100", gpus_per_node=1)
    found = {check.name: evaluate(check, Reading(value=alone), stated).verdict for check in NODE if check.reader == SMI}
    assert set(found.values()) == {Verdict.OK}, found


@pytest.mark.parametrize("change", [
    ("96.00.61.00.01", "96.00.74.00.01"),  # VBIOS
    ("535.104.05", "535.161.08"),  # driver and GSP firmware
])  # fmt: skip
def test_another_version_of_driver_or_firmware_is_a_remark_and_excludes_no_node(change):
    text = sample("nvidia-smi-q.h100.txt")
    answers = [
        NodeReadings(node=name, readings={SMI: Reading(value=text.replace(*change) if name == "n3" else text)})
        for name in ("n1", "n2", "n3", "n4")
    ]
    found = {one.node: one for one in evaluate_all([named("driver")], answers, H100)}
    assert {node: one.finding.verdict for node, one in found.items()} == {
        **dict.fromkeys(("n1", "n2", "n4"), Verdict.OK),
        "n3": Verdict.WARNING,
    }
    assert found["n3"].finding.found != found["n1"].finding.found
    assert found["n3"].finding.expected == f"{found['n1'].finding.found} (3 of 4 nodes)"
    assert to_exclude(found.values()) == {}


def test_what_a_driver_does_not_state_is_unknown_and_never_ok():
    text, stated = sample("nvidia-smi-q.a10-vm.txt"), Stated(gpu="a10", gpus_per_node=1)
    assert finding("ECC", text, stated).verdict is Verdict.UNKNOWN
    assert finding("remapped rows", text, stated).verdict is Verdict.UNKNOWN
    assert finding("throttling", text, stated).verdict is Verdict.OK, "older drivers: Clocks Throttle Reasons"
    assert finding("power cap", text, stated).verdict is Verdict.OK, "older drivers: Power Readings"
    assert finding("GPU kind", text, stated).verdict is Verdict.OK


READABLE = [("GPU answer time", 3), ("memlock", {})]
UNREADABLE = [
    (check.name, value)
    for check in NODE
    for value in ("", "NVIDIA-SMI has failed", None, 3, [], {})
    if (check.gpu_only or check.name == "memlock") and (check.name, value) not in READABLE
]


@pytest.mark.parametrize(("name", "value"), UNREADABLE)
def test_an_unreadable_text_is_unknown(name, value):
    assert finding(name, value).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("check", "kind", "count", "verdict"),
    [
        ("GPU count", "h100", 8, Verdict.BELOW_FLOOR),
        ("GPU count", "h100", 2, Verdict.OK),
        ("GPU count", "h100", 1, Verdict.WARNING),  # beyond those that the job has
        ("GPU kind", "a100", 2, Verdict.BELOW_FLOOR),
        ("GPU kind", "h100", 2, Verdict.OK),
    ],
)
def test_another_number_or_kind_of_gpus_than_stated(check, kind, count, verdict):
    stated = Stated(gpu=kind, gpus_per_node=count)
    assert finding(check, sample("nvidia-smi-q.h100.txt"), stated).verdict is verdict


@pytest.mark.parametrize("name", ["NVIDIA Future X100", ""])
def test_a_gpu_whose_kind_is_not_known_is_unknown(name):
    text = re.sub(r"(Product Name +:).*", rf"\1 {name}", sample("nvidia-smi-q.h100.txt"))
    assert finding("GPU kind", text).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("text", ["Unknown Error", "ERR!", "many"])
def test_a_count_of_errors_that_is_no_number_is_unknown(text):
    given = re.sub(r"(Uncorrectable[^:\n]*:) \d+", rf"\1 {text}", sample("nvidia-smi-q.h100.txt"))
    assert given != sample("nvidia-smi-q.h100.txt")
    assert finding("ECC", given).verdict is Verdict.UNKNOWN


def test_links_of_a_gpu_that_has_fewer_than_the_others():
    assert nvlinks(sample("nvlink-status.txt")) == [[26.562] * 3, [26.562] * 2]
    (check,) = [check for check in NODE if check.reader == LINKS]
    found = evaluate(check, Reading(value=sample("nvlink-status.txt")), H100)
    assert found.verdict is Verdict.BELOW_FLOOR
    assert found.found == "GPU 1: 2 links, slowest 26.6 GB/s"


def fabric_of(*gpus):
    names = ("State", "Status", "CliqueId", "ClusterUUID")
    text = "Driver Version                        : 570.86.15\n"
    for number, values in enumerate(gpus):
        text += f"\nGPU 00000000:0{number}:00.0\n    Product Name                      : NVIDIA GB200\n    Fabric\n"
        text += "".join(f"        {n:34}: {value}\n" for n, value in zip(names, values, strict=False))
        text += "        Health\n            Bandwidth                     : Full\n"
    return fabric(text)


def test_the_nvlink_domain_of_a_node_is_its_fabrics_id():
    """Where all its GPUs registered with one fabric. 0: NVLink ends at the node; other states: not known."""
    rack = ("Completed", "Success", "4026", "9c6f5af3-53bf-49b5-a436-b66766c413c3")
    assert fabric_of(rack, rack) == "9c6f5af3-53bf-49b5-a436-b66766c413c3.4026"
    zero = ("Completed", "Success", "0", "00000000-0000-0000-0000-000000000000")
    starved = ("Completed", "Insufficient Resources", *zero[2:])
    for other in (
        zero, starved, ("In Progress", "N/A", "N/A", "N/A"), ("Not Supported", "Success", *rack[2:]), rack[:2],
        (*rack[:2], "4027", rack[3]),
    ):  # fmt: skip
        assert fabric_of(rack, other) is None, other
    assert fabric_of(zero, zero) is None
    assert fabric(sample("nvidia-smi-q.h100.txt")) is None
    assert fabric("") is None


def port(adapter, state="4: ACTIVE", physical="5: LinkUp", rate="400 Gb/sec (4X NDR)"):
    files = {"state": state, "phys_state": physical, "rate": rate, "link_layer": "InfiniBand"}
    return {"adapter": adapter, "port": 1, "files": files}


def test_ports_that_are_down_or_slower_than_the_others():
    node = Stated(gpu="h100", gpus_per_node=2, nodes=2)
    assert finding("adapters", [port("mlx5_0"), port("mlx5_1")], node).verdict is Verdict.OK
    down = finding("adapters", [port("mlx5_0"), port("mlx5_1", "1: DOWN", "2: Polling", "10 Gb/sec (4X SDR)")], node)
    assert down.verdict is Verdict.BELOW_FLOOR
    assert "mlx5_1 port 1 Down, Polling" in down.found
    slow = finding("adapters", [port("mlx5_0"), port("mlx5_1", rate="200 Gb/sec (2X NDR)")], node)
    assert slow.verdict is Verdict.WARNING
    assert "mlx5_1 200.0 Gb/s" in slow.found
    assert finding("adapters", [], node).verdict is Verdict.UNKNOWN, "nodes of GPUs exchange data by something"
