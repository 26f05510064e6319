"""Where the groups of a layout will meet, and what that costs: by the nodes that a pilot would choose."""

import json
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from sweep.contract import Run
from sweep.inputs.topology import Spot, fabric_of, meeting
from sweep.physics.catalogue import MODELS
from sweep.physics.fabric import level, placed
from sweep.physics.groups import PLACEMENT, nodes_together, strides
from sweep.physics.hardware import GPUS
from sweep.physics.measured import LEVELS, Fabric, MeasuredRates
from sweep.physics.prediction import describe
from sweep.physics.profiles import PROFILES
from sweep.physics.step_time import PARTS
from sweep.search.placing import Tree
from tests.support.configurations import run

EACH = 4
"""GPUs of a node"""


def drawn(draw):
    """(topology, run): domains of the same width, each with its leaf switch, two under one, or neither."""
    width, count, leaf = draw.choice([2, 4, 6, 9, 18]), draw.choice([2, 3, 4]), draw.choice([None, 1, 2])
    kind = draw.choice(["domains", "switches", "both"])
    topology = {}
    for number in range(width * count):
        switches = () if kind == "domains" else (f"s{number // (width * (leaf or 1) if kind == 'both' else width)}",)
        topology[f"n{number:03}"] = Spot(None if kind == "switches" else f"d{number // width}", switches)
    nodes = draw.choice([n for n in (1, 2, 3, 4, 6, 8, 12, 16, 18, 24, 36) if n <= len(topology)])
    left, layout = nodes * EACH, {}
    for axis, widths in (("tp", (1, 2, 4, 8, 16)), ("pp", (1, 2, 3, 4, 6)), ("cp", (1, 2))):
        layout[axis] = draw.choice([size for size in widths if left % size == 0])
        left //= layout[axis]
    layout["dp"] = left
    shared = layout["dp"] * layout["cp"]
    layout["ep"] = draw.choice([size for size in (1, 2, 4, 8, 16) if shared % size == 0])
    placement = draw.choice(["packed", "spread", f"segment-{draw.choice([1, 2, 4, 8])}"])
    values = run(dp=1, mbs=1) | {"nodes": nodes, "gpus_per_node": EACH, "repeat": 0, "env": {PLACEMENT: placement}}
    values["layout"] |= layout
    return topology, Run.from_json(json.dumps(values))


def chosen(topology, made):
    """The nodes that an empty pilot chooses."""
    placement, names = made.env[PLACEMENT], list(topology)
    tree = Tree(topology)
    together = (nodes_together(made), nodes_together(made, ("tp",)))
    together = together if tree.domains or placement != "packed" else (1,)
    return tree.choose(names, names, made.nodes, together, Counter(), reject_split=False, placement=placement)


@pytest.mark.parametrize(("layout", "domains", "together"), [
    ({"tp": 16}, 2, 2), ({"tp": 4, "ep": 2, "dp": 4}, 2, 2),
    ({"tp": 8, "dp": 2}, 2, 2), ({"tp": 8, "dp": 3}, 2, 1), ({"tp": 8, "dp": 3}, 3, 2),
])  # fmt: skip
def test_of_a_group_that_no_domain_holds_half_is_in_each_of_two_and_others_are_whole(layout, domains, together):
    """Domains of three nodes; groups of two nodes are whole where there are enough domains for all of them."""
    columns = {name: np.array([float(size)]) for name, size in {"gpus_per_node": EACH, **layout}.items()}
    found = placed(columns, Fabric(domain_nodes=3, domains=domains))
    assert found["domain_gpus"] == found["switch_gpus"] == EACH * together


def test_groups_meet_where_the_nodes_of_a_pilot_would_let_them_meet():
    """All but where nodes are spread unevenly, which is predicted as evenly: 1 in 60 groups."""
    draw, right, groups = random.Random(0), 0, 0
    for _ in range(400):
        topology, made = drawn(draw)
        nodes, layout = chosen(topology, made), made.layout
        columns = {name: np.array([float(getattr(layout, name))]) for name in ("dp", "tp", "pp", "cp", "ep")}
        columns |= {"gpus_per_node": np.array([float(EACH)]), PLACEMENT: np.array([made.env[PLACEMENT]])}
        columns |= placed(columns, fabric_of(topology))
        for axis, (stride, size) in {**strides(made), "dp": (layout.tp * layout.cp, layout.dp)}.items():
            ranks_of = {}
            for rank in range(made.gpus):
                ranks_of.setdefault((rank // (stride * size), rank % stride), set()).add(nodes[rank // EACH])
            met = [LEVELS.index(meeting(map(topology.get, some))) for some in ranks_of.values() if len(some) > 1]
            if met:
                groups += 1
                right += level(columns, axis).item() == max(met)
    print(f"{right} of {groups}")
    assert right > 0.98 * groups


SWITCHES = Fabric(switch_nodes=8, switches=4)
RACKS = Fabric(domain_nodes=8, domains=4)
NEAR, FAR = 4e10, 1e10


def parts(placement, fabric=SWITCHES, levels=None, **layout):
    """Part -> (seconds, spread) of one layout on 8 nodes of 8 GPUs, that network having been measured."""
    kind = "h100" if fabric is SWITCHES else "gb200"
    known = MeasuredRates(between_bytes_per_s=NEAR, levels_bytes_per_s=levels or {}) if levels is not None else None
    linked = fabric.domain_nodes * 8 or None
    gpu = replace(GPUS[kind], fabric=fabric, measured=known, link_domain=linked)
    layout = {"dp": 1, "tp": 1, "pp": 1, "cp": 1, "grad_accum": 8, "micro_batch_size": 1, **layout}
    columns = MODELS["8B"].as_dict() | {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16", **layout}
    found = describe({**columns, PLACEMENT: np.array([placement])}, gpu, PROFILES["megatron"])
    return {name: (found.parts[0, at], found.spreads[0, at]) for at, name in enumerate(PARTS)}


@pytest.mark.parametrize(
    ("part", "layout"),
    [("data", {"dp": 8, "tp": 8}), ("pipeline", {"tp": 8, "pp": 8}), ("context", {"tp": 8, "cp": 8})],
)
@pytest.mark.parametrize("placement", ["spread", "segment-2"])
def test_groups_that_are_placed_apart_take_the_measured_rate_between_switches(part, layout, placement):
    rates = {"switch": NEAR, "across": FAR}
    near, far = (parts(one, levels=rates, **layout) for one in ("packed", placement))
    assert far[part][0] > 2 * near[part][0]
    others = {name for name in PARTS if name != part}
    assert {name: far[name] for name in others} == {name: near[name] for name in others}
    same = parts(placement, levels={"switch": NEAR, "across": NEAR}, **layout)
    assert same[part][0] == pytest.approx(near[part][0]), "a fabric that is as fast everywhere costs nothing"


def test_an_unknown_rate_between_switches_changes_no_time_and_is_less_certain():
    layout = {"dp": 8, "tp": 8}
    near, far = (parts(one, levels={}, **layout)["data"] for one in ("packed", "spread"))
    assert far[0] == near[0], "no rate is made up"
    assert far[1] > near[1]
    assert far[1] == parts("spread", **layout)["data"][1], "as uncertain as where nothing was measured"


def test_experts_and_tensor_groups_of_racks_that_are_spread_stay_inside_one_and_data_goes_over_the_network():
    layout = {"dp": 16, "tp": 4, "ep": 2}
    near, far = (parts(one, RACKS, **layout) for one in ("packed", "spread"))
    assert far["tensor"] == near["tensor"]
    assert far["data"][0] > 1.2 * near["data"][0]
