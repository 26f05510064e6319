"""How trainers differ in time: kernels, what overlaps with what, and how the host drives it. By profile name.

Facts of their source code and documentation; how long an operation takes is in ``sweep.physics.constants``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What one trainer does in a step."""

    attention: str = "flash-2"
    """flash attention kernel on Hopper and later: "flash-2" or "cudnn"; on older GPUs flash-2"""
    norms: tuple[float, float] = (10.0, 16.0)
    """elements of the residual path that one layer's norms, residual additions and dropout read and write, forward and
    backward"""
    widths: tuple[float, float] = (5.0, 10.0)
    """the same per element of the MLP's width, a gated one: activation and product"""
    heads: tuple[float, float] = (6.0, 6.0)
    """the same per element of queries and keys: rotary embedding, copies"""
    logit_traffic: float = 34.0
    """bytes read and written per logit by cast, loss and its backward"""
    products_again: float = 0.0
    """share of matrix products that selective recomputation repeats, where it drops more than attention"""
    scales_dynamically: bool = False
    """8-bit products scale each operand where they need it: it is read for its largest value, again to be cast. In
    forward inputs and weights, in backward both again and twice the gradients of outputs (torchao: float8_linear.py)"""
    stops_early: bool = False
    """full recomputation ends before a dense layer's last product, of which backward needs the inputs only
    (torch.utils.checkpoint without re-entry; measured: docs/gpu-results.md)"""
    operations: tuple[float, float] = (40.0, 60.0)
    """host operations of a layer, forward and backward (C++ autograd: two thirds of the cost each)"""
    tensor_operations: float = 12.0
    """further ones under tensor parallelism, per pass: autograd functions in Python, collectives"""
    expert_operations: tuple[float, float] = (30.0, 40.0)
    """further ones of a mixture layer, forward and backward: router, top-k, counts, permutations, exchanges"""
    kernel_per_expert: bool = False
    """each expert's product is a kernel of its own, launched from a loop in C++"""
    splits_routed_tokens: bool = True
    """each tensor-parallel rank sends its part of a micro-batch's tokens to experts; else all of them send all"""
    layer_tensors: float = 6.0
    """parameter tensors of a layer"""
    gradient_operations: float = 0.0
    """host operations per parameter tensor and micro-batch to accumulate gradients"""
    gradient_traffic: float = 8.0
    """bytes per parameter and micro-batch to accumulate gradients: fp32 read and written by the product itself"""
    optimizer_traffic: float = 44.0
    """bytes per parameter of AdamW with master weights: 28 of weights, moments and gradient; clipping 8, casts 8"""
    shard_operations: float = 0.0
    """host operations per parameter tensor and data-parallel rank and step in ZeRO-1: slices copied one by one"""
    bucket_bytes: float = 160e6
    """gradients reduced at once, in the bytes that are reduced"""
    bucket_per_rank: float = 0.0
    """parameters per data-parallel rank that a bucket has at least: buckets grow with the group"""
    weights_at_once: bool = False
    """ZeRO-1 gathers all weights in one collective, else in buckets"""
    gradient_comm_bytes: float = 4.0
    """bytes per reduced gradient"""
    overlaps_weights: bool = False
    """ZeRO-1 gathers weights while the next forward runs"""
    gathers_narrow: bool = False
    """tensor parallelism gathers inputs and gradients of outputs in the bits that products take them in"""
    tensor_hidden: float = 0.0
    """share of tensor-parallel communication that matrix products hide"""
    context_kind: str = "ring"
    """how context parallelism shares keys and values: "ring" passes them round; "gather first" gathers all while the
    first block is computed; "gather" before it computes, in one block, and scatters their gradients"""
    context_repeats_keys: bool = False
    """it exchanges keys and values repeated for every query head"""
    context_gradient_ratio: float = 1.0
    """bytes of the gradients of keys and values that it passes round, over those of keys and values"""
    context_merge_bytes: tuple[float, float] = (6.0, 12.0)
    """memory traffic per query element and block, forward and backward: partial outputs rescaled and added in one
    kernel, gradients of queries, keys and values added"""
    sends_hidden: float = 0.0
    """share of pipeline sends that run concurrently with compute"""
    blocking_sends: bool = False
    """a send blocks the host until the other stage has answered. Then no work is queued ahead: where stages are on
    several nodes, a layer's passes take CROSSING_LAYER_S and CROSSING_RANK_S per tensor-parallel rank at least, and a
    micro-batch waits SEND_WAIT_S on many nodes. No measurement of the component is published: those constants are
    from the playbook's runs."""
    network: str = "infiniband"
    """network of the clusters on which it is mostly run: "infiniband", or "efa" with slower latencies"""
    source: str = ""


_TORCH_MERGE = (40.0, 60.0)
"""torch's ring attention: outputs cast to fp32, three eager operations on them, keys and values joined; in backward
fp32 sums of three gradients, which are joined too"""

TRAINERS: dict[str, Behaviour] = {
    "builtin": Behaviour(
        source="bench_workloads/transformer: eager modules, FSDP2, SDPA; rotate() in fp32 of queries and keys, "
        "gradients of fused projections joined: the operations of eager PyTorch counted. On Hopper and B200 SDPA takes "
        "cuDNN's kernel (torch's sdp_utils.cpp, check_prefer_cudnn_attention; seen on an H200 with torch 2.11)",
        attention="cudnn",
        widths=(5.0, 13.0),
        heads=(24.0, 26.0),
        scales_dynamically=True,
        stops_early=True,
        gradient_traffic=10.0,
        bucket_bytes=1e9,
        splits_routed_tokens=False,
        context_kind="gather",
        context_merge_bytes=(0.0, 0.0),
    ),
    "torchtitan": Behaviour(
        scales_dynamically=True,
        source="pytorch/torchtitan: eager or compiled layers (eager RMSNorm and rotary embedding: a chain of fp32 "
        "operations), FSDP2, "
        "SDPA's flash attention, fused AdamW",
        bucket_bytes=1e9,
        norms=(30.0, 48.0),
        heads=(14.0, 14.0),
        optimizer_traffic=36.0,
        products_again=0.5,
        gradient_traffic=10.0,
        context_repeats_keys=True,
        context_kind="gather first",
        context_gradient_ratio=2.0,
        context_merge_bytes=_TORCH_MERGE,
    ),
    "nanotron": Behaviour(
        source="huggingface/nanotron: FP32GradientAccumulator (one add per tensor), list collectives that copy each "
        "rank's slice "
        "of each tensor (nanotron/distributed.py, optim/zero.py), torch DDP with buckets of 25 MB, p2p.py sends two "
        "tensors of metadata before each tensor and reads them on the host",
        logit_traffic=52.0,  # fp32: cast 6, maximum 4, difference 8, exponent 8, sum 4, quotient 8; backward 8 + 6
        operations=(110.0, 150.0),
        tensor_operations=100.0,
        gradient_operations=3.0,
        gradient_traffic=12.0,
        optimizer_traffic=60.0,
        shard_operations=1.0,
        bucket_bytes=50e6,
        weights_at_once=True,
        blocking_sends=True,
        network="efa",
    ),
    "megatron": Behaviour(
        source="NVIDIA/Megatron-LM and Megatron Core with Transformer Engine: fused bias, activation, dropout and norm "
        "kernels, "
        "gradients accumulated in fp32 by the weight gradient's product, cuDNN attention, --overlap-grad-reduce, "
        "--overlap-param-gather; mixtures: GroupedLinear",
        attention="cudnn",
        gathers_narrow=True,  # NVIDIA/TransformerEngine, pytorch/module/layernorm_linear.py and base.py
        kernel_per_expert=True,
        bucket_bytes=80e6,  # max(40e6, 1e6 * ranks) parameters: core/distributed/distributed_data_parallel.py since 0.5
        bucket_per_rank=1e6,
        gradient_comm_bytes=2.0,
        norms=(9.0, 14.0),
        widths=(3.0, 5.0),
        heads=(2.0, 2.0),
        operations=(25.0, 35.0),
        overlaps_weights=True,
        tensor_hidden=0.3,
        sends_hidden=0.5,
    ),
    "llm-foundry": Behaviour(
        source="mosaicml/llm-foundry, Composer: FSDP1, Triton's FlashAttention 1, gradients reduced in bf16",
        attention="flash-1",
        bucket_bytes=1e9,
        gradient_comm_bytes=2.0,
        optimizer_traffic=36.0,
    ),
    "picotron": Behaviour(
        source="huggingface/picotron: as nanotron, without fp32 accumulation of its own",
        gradient_operations=2.0,
        network="efa",
    ),
    "deepspeed": Behaviour(
        source="deepspeedai/DeepSpeed: buckets of 5e8 elements, reduced in half precision while backward runs",
        bucket_bytes=1e9,
        gradient_comm_bytes=2.0,
    ),
}
TRAINERS["megatron-2021"] = replace(
    TRAINERS["megatron"],
    source="NVIDIA/Megatron-LM until August 2021 (the asynchronous all-reduce came with cf7efd4) and "
    "bigscience-workshop/Megatron-DeepSpeed: megatron/mpu/layers.py reduces the gradient of a column's input before "
    "that of its weight is computed; megatron/p2p_communication.py waits for each send and synchronizes the GPU; "
    "megatron/model/distributed.py reduces one buffer of all gradients",
    bucket_bytes=1e12,
    bucket_per_rank=0.0,
    tensor_hidden=0.0,
    sends_hidden=0.0,
)
"""profile -> behaviour"""
ANY_TRAINER = Behaviour(source="eager PyTorch modules with flash attention")


def behaviour_of(profile: str) -> Behaviour:
    """The behaviour of a profile's trainer; of eager PyTorch if it is unknown."""
    return TRAINERS.get(profile, ANY_TRAINER)
