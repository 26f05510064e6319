"""Tables of measured training runs whose errors were looked at before a constant or a trainer's facts were chosen.

None is fitted to them, but for what the constant's source says. A constant that is not named had been chosen before.
"""

from __future__ import annotations

OLD_MEGATRON = ("Megatron 2020", "Megatron 2021 (April)", "Megatron 2021 (January)", "vTrain 3.6B")
TITAN, PLAYBOOK, FOUNDRY = ("torchtitan",), ("playbook",), ("llm-foundry A100",)
FIRST = (*OLD_MEGATRON, "Megatron 2024", *TITAN, "NeMo dense", *FOUNDRY, *PLAYBOOK)
"""while the first mechanisms were chosen"""
SECOND = (*FIRST, "NeMo experts", "NeMo experts, Kimi K2", "NeMo LoRA")
"""and while those of experts, context parallelism and adapters were: of experts only the means over all rows"""
ALL = (*SECOND, "BigScience", "MLPerf v5.0, Llama-3.1-405B", "MLPerf v5.0, Llama-2-70B")
"""and before versions of Megatron that hide communication were distinguished (``sweep.physics.trainers``), dispatchers,
CUDA graphs, gathers in 8 bits, adapters of output matrices, B300's products: every row of NeMo's tables and of MLPerf,
of the others the means"""

LOOKED_AT: dict[str, tuple[str, ...]] = {
    "MATMUL ('v100', 'fp16')": ("Megatron 2020",),
    "MATMUL ('b200', 'bf16')": ALL,
    "MATMUL ('b200', 'fp8')": ALL,
    "MATMUL ('b300', 'bf16')": ALL,
    "MATMUL ('b300', 'fp8')": ALL,
    "ORDINARY_SHAPE": FIRST,
    "SLOWEST_GPU": FIRST,
    "DEPTH": OLD_MEGATRON,
    "CASTS ('fp8', 'blackwell')": ALL,
    "CASTS ('fp4', 'blackwell')": ALL,
    "CASTS ('fp8_tensorwise', 'blackwell')": ALL,
    "CASTS ('fp8_delayed', 'blackwell')": ALL,
    "CASTS ('fp8_tensorwise', 'hopper')": ALL,
    "CASTS ('fp8', 'hopper')": ALL,
    "ROUTED": SECOND,
    "PERMUTATION_SHARE": SECOND,
    "STREAMS": SECOND,
    "BLACKWELL_MEMORY_SHARE": ALL,
    "BROADCAST_SHARE": ALL,
    "ATTENTION ('flash-1', 'ampere')": FOUNDRY,
    "ATTENTION ('cudnn', 'b200')": ALL,
    "ATTENTION ('cudnn', 'blackwell')": ALL,
    "ATTENTION ('cudnn', 'gb300')": ALL,
    "WHOLE_HALF hopper": ALL,
    "WHOLE_HALF blackwell": ALL,
    "INSIDE_REDUCE": OLD_MEGATRON,
    "INSIDE_GATHER": (*OLD_MEGATRON, *TITAN),
    "EXCHANGE_SHARE": SECOND,
    "EFA_REDUCE_STEP_S": PLAYBOOK,
    "EFA_GATHER_STEP_S": PLAYBOOK,
    "TENSOR_HIDDEN": TITAN,
    "LAUNCH_S": PLAYBOOK,
    "GRACE": SECOND,
    "SMALL_KERNEL_S": SECOND,
    "GROUPED_PRODUCT_S": ALL,
    "INTERLEAVED": ALL,
    "CROSSING_LAYER_S": PLAYBOOK,
    "CROSSING_RANK_S": PLAYBOOK,
    "SEND_WAIT_S": PLAYBOOK,
    "FACTORS experts": SECOND,
    "DOUBLING": ALL,
    "UNEXPLAINED": ALL,
    "trainer torchtitan": TITAN,
    "trainer nanotron": PLAYBOOK,
    "trainer megatron": (*OLD_MEGATRON, "Megatron 2024", "NeMo dense"),
    "trainer llm-foundry": FOUNDRY,
    "trainer megatron-2021": (*OLD_MEGATRON, "BigScience"),
}
"""constant or trainer -> tables"""
