"""The rates of a machine: of data sheets and constants, or as measured on the cluster."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import TypeAdapter

from sweep.physics import communication, constants, step_time
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS, best_matmul_share, gpu_kind
from sweep.physics.machine import Machine
from sweep.physics.measured import MeasuredCollective, MeasuredRates, bus_bandwidth
from sweep.physics.prediction import describe
from sweep.physics.profiles import PROFILES
from sweep.physics.step_time import predict

H100 = GPUS["h100"]
COLLECTIVE = {"kind": "all_gather", "nodes": 2, "ranks": 16, "bytes": 1 << 20, "seconds": 0.001}


def machine(gpu="h100", **measured):
    known = MeasuredRates(**measured) if measured else None
    return Machine(gpu=replace(GPUS[gpu], measured=known))


def test_no_mfu_exceeds_the_share_of_the_best_product_of_its_chip():
    best = constants.MATMUL["h100", "bf16"]
    assert best_matmul_share("H200", "bf16") == best.median * (1 + best.spread) > best.median
    for gpu, dtype in (("h20", "bf16"), ("h100", "fp8"), ("h100-nvl", "bf16"), (None, None)):
        assert best_matmul_share(gpu, dtype) == 0.95, "of a chip with other peaks, or another format"


def test_data_sheets_count_by_the_share_that_is_reached():
    plain = machine()
    assert plain.inside_bytes_per_s == 900e9 / 2, "one direction of NVLink's 900 GB/s"
    assert plain.between_bytes_per_s({}) == 400e9 / 8, "400 Gbit/s per GPU"
    assert plain.memory_bytes_per_s == 3.35e12 * constants.MEMORY_SHARE.median
    best = constants.MATMUL["h100", "bf16"].median * constants.ORDINARY_SHAPE.median
    assert plain.matmul_rate("bf16") == pytest.approx(989.4e12 * best, rel=1e-3)
    assert plain.matmul_scale == 1.0
    many = plain.by_dtype({"dtype": np.array(["bf16", "fp8", "bf16"])}, plain.matmul_rate)
    assert many.tolist() == [plain.matmul_rate(name) for name in ("bf16", "fp8", "bf16")]


def test_each_measured_rate_replaces_its_constant_and_no_other():
    measured = {"memory_bytes_per_s": 2e12, "inside_bytes_per_s": 3e11, "between_bytes_per_s": 4e10}
    for name, rate in measured.items():
        found = machine(**{name: rate})
        rates = {
            "memory_bytes_per_s": found.memory_bytes_per_s,
            "inside_bytes_per_s": found.inside_bytes_per_s,
            "between_bytes_per_s": found.between_bytes_per_s({}),
        }
        plain = {"memory_bytes_per_s": machine().memory_bytes_per_s, "inside_bytes_per_s": 4.5e11}
        assert rates == plain | {"between_bytes_per_s": 5e10} | {name: rate}
    products = machine(matmul_flops={"bf16": 5e14})
    assert products.matmul_rate("bf16") == 5e14
    assert products.matmul_rate("fp8") == machine().matmul_rate("fp8")
    assert products.matmul_scale == pytest.approx(5e14 / machine().matmul_rate("bf16"))


def test_a_grids_network_counts_before_the_measured_one():
    found = machine(between_bytes_per_s=4e10).between_bytes_per_s({"network_bytes_per_s": np.array([1e9, 2e9])})
    assert found.tolist() == [1e9, 2e9]


@pytest.mark.parametrize(("gpu", "dtype", "row"), [
    ("h100", "bf16", ("h100", "bf16")),
    ("h100", "fp8", ("h100", "fp8")),
    ("h100", "fp16", ("h100", "bf16")),  # the same tensor cores
    ("h100", "fp32", ("h100", "bf16")),
    ("h200", "bf16", ("h100", "bf16")),  # the same chip
    ("b300", "fp4", ("b200", "fp4")),
])  # fmt: skip
def test_the_share_of_the_peak_is_that_of_the_same_chip_and_dtype(gpu, dtype, row):
    assert machine(gpu).matmul_share(dtype) is constants.MATMUL[row]


def test_the_share_of_the_peak_of_unpublished_chips_is_any_chips():
    assert machine("t4").matmul_share("bf16") is constants.ANY_MATMUL
    assert machine("cpu").matmul_share("fp4") is constants.ANY_MATMUL
    assert machine("mi325x").matmul_share("fp8") is constants.MATMUL["mi325x", "bf16"]


def test_what_was_measured_is_less_uncertain():
    published = np.hypot(constants.MATMUL["h100", "bf16"].spread, constants.ORDINARY_SHAPE.spread)
    assert machine().matmul_spread("bf16") == pytest.approx(published)
    measured = machine(matmul_flops={"bf16": 5e14}, spread=0.01)
    assert measured.matmul_spread("bf16") == 0.01
    assert measured.matmul_spread("fp8") > 0.01
    links = machine(between_bytes_per_s=4e10, spread=0.08)
    assert links.collective_spread() == pytest.approx(0.17), "the link's 0.08, and 0.15 of algorithms over it"
    slow, quick = (MeasuredCollective(**COLLECTIVE, spread=spread) for spread in (0.1, 0.03))
    assert machine(collectives=(quick, slow), between_bytes_per_s=4e10).collective_spread() == 0.1
    assert (
        Machine(gpu=H100, network="efa").collective_spread() > machine().collective_spread() > links.collective_spread()
    )


@pytest.mark.parametrize(("levels", "rates", "known"), [
    ({}, [2, 2, 2, 2], [True, True, True, False]), ({"domain": 9e10}, [2, 9, 2, 2], [True, True, False, False]),
    ({"switch": 3e10}, [2, 2, 3, 3], [True, False, True, False]),
    ({"across": 1e10}, [2, 2, 1, 1], [True, False, False, True]),
])  # fmt: skip
def test_where_nodes_meet_at_a_level_that_was_not_measured_the_next_ones_rate_counts_with_no_less_doubt(
    levels, rates, known
):
    """Of the whole network 20 GB/s; in a domain no other level's rate is one's own."""
    found = machine(between_bytes_per_s=2e10, levels_bytes_per_s=levels, spread=0.08)
    names = ("", "domain", "switch", "across")
    assert [found.level_bytes_per_s(name) / 1e10 for name in names] == rates
    assert [found.collective_spread(level=name) < 0.2 for name in names] == known
    near = MeasuredCollective(**COLLECTIVE, spread=0.1, level="switch")
    several = machine(between_bytes_per_s=2e10, collectives=(near,), spread=0.08)
    assert [several.collective_spread(level=name) for name in names] == pytest.approx([0.1, 0.17, 0.1, 0.25])


@pytest.mark.parametrize(("rates", "layout", "part"), [
    ({"inside_bytes_per_s": 4e11}, {"tp": 8}, "tensor"), ({"between_bytes_per_s": 4e10}, {"tp": 16}, "tensor"),
    ({"between_bytes_per_s": 4e10}, {"dp": 64}, "data"), ({"memory_bytes_per_s": 2e12}, {}, "memory"),
    ({"collectives": (MeasuredCollective(**COLLECTIVE | {"nodes": 1, "ranks": 8}),)}, {"tp": 8}, "tensor"),
])  # fmt: skip
def test_a_rate_that_was_measured_narrows_the_intervals_of_what_uses_it_and_of_no_other(rates, layout, part):
    columns = MODELS["8B"].as_dict() | {"dtype": "bf16", "sequence_length": 4096, "gpus_per_node": 8} | layout
    gpus = [H100, replace(H100, measured=MeasuredRates(**rates, spread=0.02))]
    before, after = (step_time.part_spreads(columns, gpu, PROFILES["megatron"]) for gpu in gpus)
    assert {name for name in before if after[name] < before[name]} >= {part}
    assert {name for name in before if after[name] > before[name]} == set()
    wide, narrow = (describe(columns, gpu, PROFILES["megatron"]) for gpu in gpus)
    assert replace(wide, spreads=narrow.spreads).prior_sd[0] < wide.prior_sd[0]


def test_a_rate_that_was_not_measured_on_this_hardware_is_less_certain():
    assert constants.attention("flash-1", "blackwell")[1].spread == constants.NO_MEASUREMENT > 0.3
    assert constants.attention("flash-1", "hopper")[1].median < constants.attention("flash-2", "hopper")[1].median
    own, other = machine("h100").matmul_spread("bf16"), machine("h20").matmul_spread("bf16")
    assert other == pytest.approx((own**2 + constants.OTHER_KIND**2) ** 0.5)


def test_rates_are_shown_with_spread_and_source_measured_ones_with_when_and_where():
    one = MeasuredCollective(**COLLECTIVE, spread=0.1)
    inside = MeasuredCollective(**COLLECTIVE | {"nodes": 1, "ranks": 8})
    rates = {"date": "2026-11-20", "nodes": ("n1", "n2"), "spread": 0.02}
    rates |= {"matmul_flops": {"bf16": 6.9e14}, "memory_bytes_per_s": 2e12, "inside_bytes_per_s": 4e11}
    found = {name: rest for name, *rest in machine(**rates, collectives=(one, inside)).rates("cudnn")}
    there = "measured 2026-11-20 on n1, n2"
    assert found["matrix products, bf16"] == ["690 TFLOP/s ± 2%", there]
    assert found["matrix products, fp8"][1] == constants.MATMUL["h100", "fp8"].source
    assert found["memory"] == ["2 TB/s ± 2%", there]
    assert found["link in a node"] == ["400 GB/s ± 2%", there]
    assert found["network per GPU"] == ["50 GB/s ± 10%", "data sheet"]
    assert found["attention forward, cudnn"][1] == constants.ATTENTION["cudnn", "hopper"][0].source
    assert found["all_gather of 1,048,576 B, 16 GPUs on 2 nodes"] == ["0.001 s ± 10%", there]
    assert found["all_gather of 1,048,576 B, 8 GPUs on 1 node"] == ["0.001 s ± 5%", there]


@pytest.mark.parametrize(("nodes", "date", "wanted"), [
    (0, "", "measured"),
    (0, "2026-11-20", "measured 2026-11-20"),
    (4, "", "measured on n0, n1, n2, n3"),
    (5, "", "measured on n0, n1, n2, n3 and 1 more"),
    (9, "2026-11-20", "measured 2026-11-20 on n0, n1, n2, n3 and 5 more"),
])  # fmt: skip
def test_where_and_when_rates_were_measured_names_four_nodes_at_most(nodes, date, wanted):
    assert MeasuredRates(date=date, nodes=tuple(f"n{i}" for i in range(nodes))).provenance == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        *({"nodes": 0}, {"nodes": 3, "ranks": 2}, {"nodes": 1, "ranks": 1}, {"bytes": 0}, {"kind": "broadcast"}),
        *({"seconds": 0}, {"seconds": -1.0}, {"seconds": 1e4}, {"spread": 0}, {"spread": 2.1}),
    ],
)
def test_what_no_collective_can_take_is_refused(wrong):
    with pytest.raises(ValueError, match=r"must be positive|kind is one of|spread is"):
        MeasuredCollective(**COLLECTIVE | wrong)
    for rate in (0.0, -1.0, 1e18):
        with pytest.raises(ValueError, match="must be positive"):
            MeasuredRates(between_bytes_per_s=rate)


@pytest.mark.parametrize("right", [
    {"nodes": 1, "ranks": 2}, {"nodes": 2, "ranks": 2}, {"bytes": 1}, {"seconds": 9999.0}, {"seconds": 0.5},
    {"spread": 2},
])  # fmt: skip
def test_what_a_collective_can_take_is_accepted(right):
    assert MeasuredCollective(**COLLECTIVE | right)


def test_rates_of_a_file_may_be_whole_numbers_and_lists_and_nothing_else_is_in_it():
    """As YAML has them."""
    read = TypeAdapter(MeasuredRates).validate_python
    found = read({"nodes": ["n1"], "memory_bytes_per_s": 2, "collectives": [COLLECTIVE | {"seconds": 1}]})
    assert (found.nodes, found.memory_bytes_per_s, found.collectives[0].seconds) == (("n1",), 2.0, 1.0)
    for wrong in ({"memory": 2e12}, {"collectives": [COLLECTIVE | {"size": 3}]}):
        with pytest.raises(ValueError, match=r"[Uu]nexpected"):
            read(wrong)


@pytest.mark.parametrize(("gpu", "wanted"), [
    ("v100", "ampere"), ("a100", "ampere"), ("h100", "hopper"), ("h200", "hopper"), ("b200", "blackwell"),
    ("gb200", "blackwell"), ("l40s", "ampere"), ("cpu", "ampere"), ("mi250x", "cdna"), ("mi355x", "cdna"),
])  # fmt: skip
def test_attention_kernels_are_those_of_the_gpus_architecture_or_of_an_older_one(gpu, wanted):
    assert machine(gpu).architecture == wanted


def test_a_group_of_gpus_that_are_linked_one_by_one_has_its_part_of_the_links():
    """MI300X: 64 GB/s to each of seven others, of which 48 are usable (NVIDIA's switch gives any group all)."""
    mi300x, h100 = (Machine(gpu=GPUS[name]) for name in ("mi300x", "h100"))
    assert [mi300x.inside_group_bytes_per_s(ranks) / 1e9 for ranks in (1, 2, 4, 8, 64)] == [64, 64, 192, 448, 448]
    assert h100.inside_group_bytes_per_s(2) == h100.inside_group_bytes_per_s(8) == 450e9
    layout = {"dp": 8, "tp": np.array([2, 4, 8]), "hidden_size": 8192, "sequence_length": 2**21, "ep": 2}
    seconds = communication.tensor_s(layout, mi300x)
    assert seconds[0] == pytest.approx(0.5 / (7 / 8) * 7 * seconds[2], rel=0.01)
    exchanged = communication.exchange_s(layout, 1e9, 1e9, 2.0, 1.0, mi300x)
    assert exchanged == pytest.approx(0.5e9 / (64e9 * constants.EXCHANGE_SHARE.median), rel=0.01)
    pair = Machine(gpu=replace(GPUS["mi300x"], measured=MeasuredRates(inside_bytes_per_s=48e9)))
    assert pair.inside_group_bytes_per_s(8) == 7 * 48e9


def test_nodes_of_gpus_without_a_known_network_share_an_eighth_of_the_link():
    alone = Machine(gpu=replace(H100, network_bytes_per_s=None))
    assert alone.between_bytes_per_s({}) == alone.inside_bytes_per_s / 8
    neither = Machine(gpu=replace(H100, network_bytes_per_s=None, link_bytes_per_s=None))
    assert (neither.inside_bytes_per_s, neither.between_bytes_per_s({})) == (2e11, 2.5e10)
    assert Machine(gpu=replace(H100, memory_bytes_per_s=None)).memory_bytes_per_s == pytest.approx(1e12 * 0.8)


def test_the_links_of_a_rack_join_more_gpus_than_a_node_has():
    """A GB200's node in Slurm has four GPUs, the NVLink domain 72: within it, tensor parallelism crosses no network.
    Where something was measured between nodes, that counts."""
    layout = MODELS["Llama-3.1-405B"].as_dict() | {"sequence_length": 8192, "dtype": "bf16", "tp": 8, "dp": 8}
    for name in ("gb200", "gb300"):
        gpu = GPUS[name]
        trays, racks = (predict(layout | {"gpus_per_node": n}, gpu, PROFILES["megatron"]) for n in (4, 72))
        assert sum(trays.values()) == sum(racks.values())
        slow = replace(gpu, measured=MeasuredRates(date="2026-01-01", nodes=("a", "b"), between_bytes_per_s=4e10))
        measured = predict(layout | {"gpus_per_node": 4}, slow, PROFILES["megatron"])
        assert measured["tensor"] > 3 * trays["tensor"]
    for nodes, each in ((1, 72), (2, 4)):
        one = MeasuredCollective(**COLLECTIVE | {"nodes": nodes})
        known = Machine(gpu=replace(GPUS["gb200"], measured=MeasuredRates(collectives=(one,))))
        assert known.within_links({"gpus_per_node": 4})["gpus_per_node"] == each
    trays, boxes = (predict(layout | {"gpus_per_node": n}, GPUS["b200"], PROFILES["megatron"]) for n in (4, 72))
    assert trays["tensor"] > 3 * boxes["tensor"]


@pytest.mark.parametrize(
    ("operation", "factor"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875), ("all_to_all", 0.875), ("p2p", 1.0)],
)
def test_bus_bandwidth_is_that_of_nccl_tests(operation, factor):
    assert bus_bandwidth(operation, 8e9, 2.0, 8) == pytest.approx(4e9 * factor)


def test_a_kind_is_read_from_the_names_that_drivers_and_schedulers_give_it():
    names = yaml.safe_load((Path(__file__).parent / "gpu_names.yaml").read_text())
    assert {name: gpu_kind([name]) for name in names} == names
