"""How much each axis of a layout sends, and how long that takes, alone: bytes per GPU and seconds per optimizer step.

Collectives over n ranks of a buffer of b bytes cost (n-1)/n b on the wire for gather and scatter, twice that for
all-reduce (ring; Thakur et al. 2005), plus a latency per step of the algorithm. A ring has n-1 steps per pass, a tree
2 log2 n with pipelined chunks (Sanders et al. 2009, NCCL's double binary trees): the faster one counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sweep.physics import constants, fabric, pipeline
from sweep.physics.columns import element_bytes, equals, local_tokens, read
from sweep.physics.machine import LARGE_BYTES, Machine
from sweep.physics.measured import MeasuredCollective

Columns = Mapping[str, Any]


def axis_nodes(columns: Columns, axis: str) -> Any:
    """Nodes that one group of the axis spans, ranks being numbered tp first, then cp, dp and pp (Megatron's order)."""
    width = read(columns, axis)
    ranks = width if axis == "ep" else fabric.span(columns, axis)
    return np.maximum(np.ceil(np.minimum(width, ranks / read(columns, "gpus_per_node"))), 1)


def collective_s(
    columns: Columns, bytes_: Any, ranks: Any, nodes: Any, machine: Machine, *, kind: str = "gather", calls: Any = 1,
    axis: str = "",
) -> Any:  # fmt: skip
    """Seconds of ``calls`` collectives that move ``bytes_`` in all. kind: gather (and scatter, exchange) or reduce.
    ``axis``: whose groups these are, by which the fabric's rate is known.

    Between nodes every GPU of a node carries its part: a group of several ranks per node sends as many times less
    over each network card.
    """
    per_call = np.asarray(bytes_) / np.maximum(calls, 1)
    alone = nominal_s(machine.between_bytes_per_s(columns, axis), per_call, ranks, nodes, machine, kind)
    if machine.measured.collectives:
        alone = alone * _measured_ratio(columns, per_call, nodes, machine, kind)
    return np.where(np.asarray(ranks) > 1, alone * calls, 0.0)


def nominal_s(network: Any, bytes_: Any, ranks: Any, nodes: Any, machine: Machine, kind: str) -> Any:
    """Seconds of one collective by the constants alone. ``network``: bytes/s of one GPU between nodes."""
    if kind == "exchange":
        return _nominal_exchange_s(network, bytes_, bytes_, ranks, nodes, machine)
    passes = 2.0 if kind == "reduce" else 1.0
    inside_share = constants.INSIDE_REDUCE if kind == "reduce" else constants.INSIDE_GATHER
    cloud = machine.network == "efa"
    per_node = np.asarray(ranks) / nodes
    wire = passes * bytes_ * (ranks - 1) / np.maximum(ranks, 1)
    inside = wire / (machine.inside_group_bytes_per_s(per_node) * inside_share.median)
    between = wire / per_node / (network * machine.between_share.median)
    steps = constants.INSIDE_STEP_S.median
    within = (ranks - nodes) * steps
    if cloud:
        per_rank = constants.EFA_REDUCE_STEP_S if kind == "reduce" else constants.EFA_GATHER_STEP_S
        across = (ranks - 1) * per_rank.median
    else:
        hop = constants.BETWEEN_STEP_S.median
        across = within + (nodes - 1) * hop
        tree = 2 * (np.log2(per_node) * steps + np.log2(np.maximum(nodes, 1)) * hop)
        across = np.minimum(across, tree) if kind == "reduce" else across
    latency = constants.INSIDE_BASE_S.median + passes * np.where(nodes > 1, across, within)
    return np.where(nodes > 1, np.maximum(inside, between), inside) + latency


def exchange_s(columns: Columns, to_ranks: Any, to_nodes: Any, ranks: Any, nodes: Any, machine: Machine) -> Any:
    """Seconds of an all-to-all in which a rank has bytes for every rank, and bytes that it has to send every node.

    They differ where a message is sent to a node once for several of its ranks.
    """
    network = machine.between_bytes_per_s(columns, "ep")
    alone = _nominal_exchange_s(network, to_ranks, to_nodes, ranks, nodes, machine)
    if machine.measured.collectives:
        alone = alone * _measured_ratio(columns, to_ranks, nodes, machine, "exchange")
    return np.where(np.asarray(ranks) > 1, alone, 0.0)


def _nominal_exchange_s(network: Any, to_ranks: Any, to_nodes: Any, ranks: Any, nodes: Any, machine: Machine) -> Any:
    """Each GPU sends what it has over its own link and its own network card.

    Unlike a ring's, its traffic is not shared by the cards of a node (NVIDIA/nccl-tests issues 130 and 267).
    """
    inside = to_ranks * (ranks - nodes) / np.maximum(ranks, 1)
    across = to_nodes * (nodes - 1) / np.maximum(nodes, 1)
    link = machine.inside_group_bytes_per_s(ranks / nodes) * constants.EXCHANGE_SHARE.median
    wire = network * machine.between_share.median
    steps = (ranks / nodes - 1) * constants.INSIDE_STEP_S.median + (nodes - 1) * constants.BETWEEN_STEP_S.median
    return np.maximum(inside / link, across / wire) + constants.INSIDE_BASE_S.median + steps


_FAMILY = {"all_reduce": "reduce", "all_gather": "gather", "reduce_scatter": "gather", "all_to_all": "exchange"}


def _measured_ratio(columns: Columns, bytes_: Any, nodes: Any, machine: Machine, kind: str) -> Any:
    """Measured over nominal seconds: of the same kind (else of any), within or across nodes, large or small.

    Between measured numbers of nodes the logarithm is interpolated; beyond them the nearest counts.
    """
    known = [one for one in machine.measured.collectives if _FAMILY[one.kind] == kind] or machine.measured.collectives
    found = np.ones(np.broadcast(bytes_, nodes).shape)
    for across in (False, True):
        side = [one for one in known if (one.nodes > 1) == across]
        for large in (False, True):
            same = [one for one in side if (one.bytes >= LARGE_BYTES) == large] or side
            if same:
                where = ((np.asarray(nodes) > 1) == across) & ((np.asarray(bytes_) >= LARGE_BYTES) == large)
                found = np.where(where, _interpolated(columns, same, nodes, machine), found)
    return found


def _interpolated(columns: Columns, same: Sequence[MeasuredCollective], nodes: Any, machine: Machine) -> Any:
    points: dict[int, list[float]] = {}
    first = {name: np.asarray(read(columns, name)).flat[0] for name in ("network_bytes_per_s",) if name in columns}
    for one in same:
        network = machine.between_bytes_per_s(first) if first else machine.level_bytes_per_s(one.level)
        nominal = nominal_s(network, one.bytes, float(one.ranks), float(one.nodes), machine, _FAMILY[one.kind])
        points.setdefault(one.nodes, []).append(float(np.log(one.seconds / nominal)))
    at = sorted(points)
    values = [float(np.mean(points[one])) for one in at]
    return np.exp(np.interp(np.log2(np.maximum(nodes, 1)), np.log2(at), values))


def tensor_s(columns: Columns, machine: Machine, *, sequence_parallel: bool = True, narrow: bool = False) -> Any:
    """Seconds of one layer's tensor-parallel communication in one forward, without overlap.

    Two gathers and two scatters of the activations (arXiv 2205.05198 sec. 4.2.2), or two all-reduces without sequence
    parallelism; backward has as many, recomputation the forward's again. ``narrow``: what is gathered was cast to the
    8 bits or fewer that products take.
    """
    size, tp, nodes = activation_bytes(columns), read(columns, "tp"), axis_nodes(columns, "tp")
    if sequence_parallel:
        gathered = np.where(equals(columns, "dtype", "fp8"), 0.5, np.where(equals(columns, "dtype", "fp4"), 0.42, 1.0))
        moved = (2.0 + 2.0 * np.where(narrow, gathered, 1.0)) * size
        return collective_s(columns, moved, tp, nodes, machine, calls=4.0, axis="tp")
    return collective_s(columns, 2.0 * size, tp, nodes, machine, kind="reduce", calls=2.0, axis="tp")


def send_s(columns: Columns, machine: Machine) -> Any:
    """Seconds of one send of a micro-batch's activations to the next stage."""
    size = activation_bytes(columns) / read(columns, "tp")
    return _sent_s(columns, size, "pp", machine, constants.SEND_S.median)


def ring_step_s(columns: Columns, size: Any, axis: str, machine: Machine) -> Any:
    """Seconds in which all ranks of an axis' groups send to their neighbours at once: no stage waits for another."""
    across = axis_nodes(columns, axis) > 1
    step = np.where(across, constants.BETWEEN_STEP_S.median, constants.INSIDE_STEP_S.median)
    return _sent_s(columns, size, axis, machine, constants.INSIDE_BASE_S.median + step)


def _sent_s(columns: Columns, size: Any, axis: str, machine: Machine, latency_s: Any) -> Any:
    """Seconds of one send from a GPU to the next of the axis, of another node where its groups span several."""
    crosses = axis_nodes(columns, axis) > 1
    between = machine.between_bytes_per_s(columns, axis) * machine.between_share.median
    speed = np.where(crosses, between, machine.inside_group_bytes_per_s(2) * constants.INSIDE_GATHER.median)
    ratio = 1.0
    if machine.measured.collectives:
        nodes = np.where(crosses, 2.0, 1.0)
        ratio = _measured_ratio(columns, size, nodes, machine, "gather")
    return (size / speed + latency_s) * ratio


def sends(columns: Columns) -> Any:
    """Sends of activations and their gradients that a stage waits for: each way per chunk and micro-batch."""
    in_turn = read(columns, "grad_accum") + (read(columns, "pp") - 1) / pipeline.chunks_per_rank(columns)
    return np.where(read(columns, "pp") > 1, 2.0 * pipeline.chunks_per_rank(columns) * in_turn, 0.0)


def waited_s(sent_s: Any, cover: Any) -> Any:
    """What is left of communication under cover, and the compute that it slows down."""
    hidden = np.minimum(sent_s, cover)
    return sent_s - hidden + constants.COLLECTIVE_SMS.median * hidden


def activation_bytes(columns: Columns) -> Any:
    """One activation of the residual path of a micro-batch, whole."""
    return element_bytes(columns) * local_tokens(columns) * read(columns, "hidden_size")
