"""Where nodes are, by what Slurm, the fabric and the site state."""

from dataclasses import replace

import pytest

from sweep.errors import SweepError
from sweep.inputs.site import parse_site
from sweep.inputs.topology import (
    MOST_HOSTS,
    Spot,
    fabric_of,
    hosts,
    located,
    meeting,
    parse_topology,
    spot_at,
    stated_domains,
    units_of,
)
from sweep.physics.catalogue import MODELS
from sweep.physics.measured import Fabric
from sweep.physics.profiles import PROFILES
from sweep.physics.step_time import predict

ADDRESSES = [
    ("tux1", "node", Spot()),  # topology/flat, or a node in no block
    ("s0.s4.s8.tux1", "switch.switch.switch.node", Spot(None, ("s0", "s4", "s8"))),  # topology/tree
    ("core.leaf[1-2].n3", "switch.switch.node", Spot(None, ("core", "leaf[1-2]"))),  # two adapters, a leaf each
    ("..n4", "switch.switch.node", Spot()),  # topology/tree, on no switch
    (".leaf1.n6", "switch.switch.node", Spot(None, ("", "leaf1"))),  # no switch above its own
    ("core..n5", "switch.switch.node", Spot(None, ("core", ""))),  # on the top switch itself
    ("b8.tux1", "block.node", Spot("b8", ("b8",))),  # topology/block, Slurm 24.05 and later
    ("rack1.n3.example.org", "switch.node", Spot(None, ("rack1",))),
    ("s0", "switch.node", None),
    ("", "", None),
    ("s1.n1", "", None),
    ("", "switch.node", None),
]
"""By slurmd of Slurm 22.05 to 26.05; 22.05's are those of the cluster that tests/system/test_node_groups.py runs on"""


@pytest.mark.parametrize(("address", "pattern", "spot"), ADDRESSES)
def test_the_address_of_a_node(address, pattern, spot):
    assert spot_at(address, pattern) == spot


TREE = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[01-03,05]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[06-07]
SwitchName=spine1 Level=1 LinkSpeed=1 Nodes=n[01-03,05-07] Switches=leaf[1-2]
SwitchName=leaf3 Level=0 LinkSpeed=1 Nodes=n[08-09]
SwitchName=spine2 Level=1 LinkSpeed=1 Nodes=n[08-10] Switches=leaf3
SwitchName=core Level=2 LinkSpeed=1 Nodes=n[01-03,05-10] Switches=spine[1-2]
"""
BLOCKS = """\
BlockName=rack1 BlockIndex=0 Nodes=gb-r1-[01-18] BlockSize=18 Comment=a=b
BlockName=rack2 BlockIndex=1 BlockSize=18
BlockName=rack3 BlockIndex=2 Nodes=gb-r3-[01,03-04],gb-x7 BlockSize=18
AggregatedBlock=rack[1-2] BlockIndex=3 Nodes=gb-r1-[01-18] BlockSize=36
"""


def test_a_tree_of_three_levels_as_the_controller_shows_it():
    found = parse_topology(TREE)
    assert found["n05"] == Spot(None, ("core", "spine1", "leaf1"))
    assert found["n09"] == Spot(None, ("core", "spine2", "leaf3"))
    assert found["n10"] == Spot(None, ("core", "spine2", "")), "on a spine itself"
    assert (found["n10"].leaf, found["n09"].leaf) == (None, "leaf3")
    assert "n04" not in found
    assert len(found) == 9


def test_blocks_as_the_controller_shows_them_empty_ones_with_holes_and_aggregated():
    found = parse_topology(BLOCKS)
    assert found["gb-r1-18"] == Spot("rack1", ("rack1",))
    assert found["gb-x7"].domain == found["gb-r3-03"].domain == "rack3"
    assert "gb-r3-02" not in found
    assert len(found) == 22


@pytest.mark.parametrize("text", [
    "", "No topology information available\n", "TopologyPlugin=topology/flat", "Switch",
    "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[01-", BLOCKS + "BlockName=rack4 BlockIndex=4 Nodes=gb-r4-[1-",
])  # fmt: skip
def test_what_states_no_topology_or_is_cut_is_not_known(text):
    assert parse_topology(text) == {}


def test_lists_of_nodes():
    assert hosts("n[8-10],m1") == ["n8", "n9", "n10", "m1"]
    assert hosts("r[1-2]c[01-02]x") == ["r1c01x", "r1c02x", "r2c01x", "r2c02x"]
    assert hosts("") == []
    for wrong in ("n[1-2", "n1]", "n[2-1]", "n[a]", "n 1", "n[1-2][", f"n[1-{MOST_HOSTS + 2}]", "n[1-9999]m[1-9999]"):
        with pytest.raises(ValueError, match="node"):
            hosts(wrong)


def test_the_sites_domain_is_before_the_fabrics_and_that_before_slurms_block():
    spots = {"n1": Spot("b1", ("b1",)), "n2": Spot("b1", ("b1",)), "n3": Spot("b1", ("b1",)), "n4": None, "n5": None}
    shown = {"n4": Spot(None, ("core", "leaf1")), "n3": Spot("other")}
    found = located(spots, shown, {"n1": "n[1,9]"}, {"n1": "u.1", "n2": "u.1"})
    assert {node: spot.domain for node, spot in found.items()} == {"n1": "n[1,9]", "n2": "u.1", "n3": "b1", "n4": None}
    assert found["n1"] == replace(spots["n1"], domain="n[1,9]")
    assert found["n4"].leaf == "leaf1", "its daemon says nothing, the controller does"
    assert "n5" not in found, "not known"


@pytest.mark.parametrize(
    ("text", "fabric", "meets"),
    [
        ("", None, {("n01", "n02"): ""}),
        (TREE, Fabric(switch_nodes=4, switches=3), {("n01", "n05"): "switch", ("n05", "n06"): "across"}),
        (TREE, Fabric(switch_nodes=4, switches=3), {("n01", "n10"): "", ("n04", "n05"): ""}),
        (
            BLOCKS,
            Fabric(domain_nodes=18, domains=2, switch_nodes=18, switches=2),
            {("gb-r1-01", "gb-r1-18"): "domain", ("gb-r1-01", "gb-x7"): "across"},
        ),
    ],
)
def test_what_the_controller_states_is_the_fabric_that_predictions_have(text, fabric, meets):
    found = parse_topology(text)
    assert fabric_of(found) == fabric
    assert {nodes: meeting(map(found.get, nodes)) for nodes in meets} == meets


SITE = "gpu: h100\ngpus_per_node: 8\n"


def test_a_site_states_its_domains():
    site = parse_site(f'{SITE}domain_nodes: ["n[1-4]", "n[5-6],n8"]\n', "site.yaml")
    assert site.linked_gpus == 32
    plain = parse_site(SITE, "site.yaml")
    assert (plain.linked_gpus, plain.hardware.fabric) == (8, None)
    assert stated_domains(site.domain_nodes)["n8"] == "n[5-6],n8"


def test_a_prediction_sends_a_group_that_spans_domains_over_the_network():
    """Of 16 ranks on four nodes: in one domain of a rack, or in domains of two nodes."""
    layout = MODELS["Llama-3.1-405B"].as_dict() | {"sequence_length": 8192, "dtype": "bf16", "tp": 16, "dp": 4}
    seconds = []
    for domains in ("", 'domain_nodes: ["g[1-18]"]\n', 'domain_nodes: ["g[1-2]", "g[3-4]"]\n'):
        site = parse_site(f"gpu: gb200\ngpus_per_node: 4\n{domains}", "site.yaml")
        seconds.append(predict(layout | {"gpus_per_node": 4}, site.hardware, PROFILES["megatron"])["tensor"])
    assert seconds[0] == seconds[1], "72 GPUs, as the catalogue has them"
    assert seconds[2] > 1.5 * seconds[0]


@pytest.mark.parametrize(("lists", "message"), [
    ('["n[1-4]", "n[3-6]"]', "n3 is in two domains"), ('["n[1-"]', "no range of nodes"), ('[""]', "without nodes"),
])  # fmt: skip
def test_what_is_no_list_of_domains_is_refused(lists, message):
    with pytest.raises(SweepError, match=message) as error:
        parse_site(f"{SITE}domain_nodes: {lists}\n", "site.yaml")
    assert "site.yaml:3" in str(error.value)


def test_units_are_named_once():
    spots = {"a1": Spot("a", ("core", "s1")), "a2": Spot("a", ("core", "s1")), "b1": Spot("b", ("core", "s2")),
             "b2": Spot("b", ("core", "s3")), "c1": Spot(None, ("core", "s2"))}  # fmt: skip
    found = {name: sorted(nodes) for name, nodes in units_of(spots).items()}
    assert {name: nodes for name, nodes in found.items() if len(nodes) > 1} == {
        "domain a": ["a1", "a2"], "domain b": ["b1", "b2"], "switch s2": ["b1", "c1"],
    }  # fmt: skip
    assert sorted(found) == sorted({*spots, "domain a", "domain b", "switch s2"})
