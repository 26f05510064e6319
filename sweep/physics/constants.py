"""Every constant of the step-time model: its median, how uncertain it is, where it is from.

``spread`` is the standard deviation of the logarithm: 0.1 is about 10 %. None is fitted to a table of training runs;
those that had been looked at before: ``benchmarks/looked_at.py``. Rates of a site replace medians (see
``sweep.physics.machine``); measured runs update what is left (``sweep.physics.prediction``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Constant:
    """A value with its uncertainty and source."""

    median: float
    spread: float
    source: str


MAMF = "Stas Bekman, ML Engineering, table of maximum achievable matmul FLOPS"
FLASH_3 = "arXiv 2407.08608 fig. 5 to 7 (H100, head_dim 128, 2k to 16k)"
SDPA = "NVIDIA/cudnn-frontend benchmark/sdpa_benchmark_training and norms: "
NCCL = "NVIDIA/nccl src/graph/tuning.cc, ring, protocol Simple"
TE_B300 = (
    "NVIDIA/TransformerEngine docs/examples/gemm_profiling.rst (1609c89): the 12 products of a layer of 4,096 x 16,384 "
    "at 15,872 tokens on B300, operands cast before, over ORDINARY_SHAPE and what product_s predicts of their shape"
)
TE_CASTS = (
    "NVIDIA/TransformerEngine docs/examples/gemm_profiling.rst (1609c89), 12 products less those cast before, of 2.2e9 "
    "elements: "
)
AITER = "AMD-AGI/Primus-Turbo output/baseline_attention.csv (221d75f), AITER on MI300X, causal, head_dim 128: "
HIPKITTENS = "HazyResearch/HipKittens, analysis (2025-11), on MI355X: "
NO_FASTER = "no faster than B300 (1,000 for 1,100 W); best shape 0.776 in bf16, 0.763 in fp8: " + MAMF
GB200 = (
    "B300's times 1.05, the ratio of their best shapes ("
    + MAMF
    + "); MXFP8 products of experts of 7,168 x 2,048 reach "
    "2,672 TFLOP/s (NVIDIA/Megatron-LM docs/discussions/deepseek-v3-gb200-optimization), so predicted 2,500 to 2,850"
)
POWER = (
    "no benchmark published: GB200's best shape (0.729, 0.723) times the power limits (1,400 W for 1,200: "
    "glennklockwood.com, of NVIDIA's announcement in 2025), to the power 0.42 (square root to cube root of it): 1.10 "
    "and 1.16 times its ordinary ones, cuDNN's backward 1.09 (4k) to 1.21 (32k) times (cudnn-frontend, llama3.1)"
)
EFA = (
    "Ultra-Scale Playbook, communication bandwidth by number of nodes (256 MB, 8 H100 per node, EFA); ML Engineering, "
    "all-reduce of 4 nodes by payload"
)

MATMUL: dict[tuple[str, str], Constant] = {
    ("v100", "fp16"): Constant(
        0.81,
        0.08,
        "Markidis et al. 2018, arXiv 1803.04014: 83 of 112 TFLOP/s in ordinary products, over ORDINARY_SHAPE",
    ),
    ("a100", "bf16"): Constant(0.869, 0.04, MAMF),
    ("h100", "bf16"): Constant(0.803, 0.05, MAMF),
    ("h100", "fp8"): Constant(0.709, 0.08, MAMF),
    ("gh200", "bf16"): Constant(0.838, 0.05, MAMF),
    ("gh200", "fp8"): Constant(0.776, 0.08, MAMF),
    ("b200", "bf16"): Constant(0.754, 0.05, NO_FASTER),
    ("b200", "fp8"): Constant(0.70, 0.08, NO_FASTER),
    ("b200", "fp4"): Constant(0.65, 0.20, "no table: below the share of fp8, as fp8 is below bf16 on other kinds"),
    ("gb200", "bf16"): Constant(0.708, 0.06, GB200),
    ("gb200", "fp8"): Constant(0.664, 0.10, GB200),
    ("b300", "bf16"): Constant(0.754, 0.05, TE_B300),
    ("b300", "fp8"): Constant(0.70, 0.08, TE_B300 + "; MXFP8 0.68, one scale per tensor 0.72"),
    ("gb300", "bf16"): Constant(0.778, 0.08, POWER),
    ("gb300", "fp8"): Constant(0.771, 0.10, POWER),
    ("mi300x", "bf16"): Constant(0.514, 0.15, MAMF),
    ("mi300x", "fp8"): Constant(0.443, 0.15, "Azure/AI-benchmarking-guide, ND MI300X v5: hipBLASLt to 1,159 TFLOP/s"),
    ("mi325x", "bf16"): Constant(0.604, 0.15, MAMF),
    ("mi355x", "bf16"): Constant(0.622, 0.10, MAMF + " (1,565 TFLOP/s)"),
    ("mi355x", "fp8"): Constant(0.654, 0.10, HIPKITTENS + "hipBLASLt 2,749, 3,233 and 3,293 TFLOP/s at 4k, 8k and 16k"),
}
"""(GPU kind, dtype) -> share of the dense peak that the best matrix product reaches"""
SAME_CHIP = {
    "v100-16gb": "v100",
    "a100-40gb": "a100",
    "a10": "a100",
    "a40": "a100",
    "l40s": "h100",
    "l4": "h100",
    "h200": "h100",
    "h20": "h100",
    "h800": "h100",
    "a800": "a100",
    "h100-pcie": "h100",
    "rtx4090": "a100",
}
"""kind without its own row -> the kind whose share of the peak FLOP/s counts: same chip, or else the same generation"""
ANY_MATMUL = Constant(0.75, 0.15, "between the kinds measured (0.51 to 0.87)")

ORDINARY_SHAPE = Constant(
    0.91,
    0.04,
    "SemiAnalysis, MI300X against H100 and H200 (2024-12): Llama 70B's shapes with random inputs reach 720 TFLOP/s in "
    "bf16 and 1,280 in fp8 on H100, against 794 and 1,403 of the best shape",
)
"""rate of a large product of a model's shape over that of the best shape"""
SLOWEST_GPU = Constant(
    0.97, 0.03, "ML Engineering: 5 % between the matmul rates of the GPUs of a node; all wait for the slowest"
)
TILE = Constant(
    128.0 * 128.0,
    0.5,
    "cuBLAS and CUTLASS: outputs of 128 x 128 per thread block; half a wave is idle on average. With DEPTH, and the "
    "level free, within 1.9 % (rms) of cuBLAS's times on H100 and 4.7 % on B200, of 34 products of 60 GFLOP and more "
    "in bf16 (openxla/xla, default_matmul_perf_table.txtpb)",
)
DEPTH = Constant(
    192.0, 0.5, "three to four stages of 64 in the inner loop are filled before a block computes (CUTLASS)"
)
MULTIPROCESSORS = {
    "v100": 80,
    "v100-16gb": 80,
    "a100": 108,
    "a100-40gb": 108,
    "b200": 148,
    "gb200": 152,
    "b300": 148,
    "gb300": 152,
    "mi300x": 304,
    "mi325x": 304,
    "mi355x": 256,
    "a10": 72,
    "a40": 84,
    "l4": 58,
    "l40s": 142,
    "rtx4090": 128,
    "h20": 78,
}
"""from the makers' architecture papers; else 132 (H100)"""

CASTS = {
    ("fp8", "blackwell"): Constant(4.6, 0.15, TE_CASTS + "1.82 ms on B300, MXFP8: read once, written in two layouts"),
    ("fp8_tensorwise", "blackwell"): Constant(5.9, 0.15, TE_CASTS + "2.34 ms on B300: read for its largest value too"),
    ("fp8_delayed", "blackwell"): Constant(2.5, 0.4, TE_CASTS + "0.99 ms on B300, of fp8_tensorwise's products"),
    ("fp4", "blackwell"): Constant(7.0, 0.15, TE_CASTS + "2.69 ms on B300: read for amax, rows and columns"),
    ("fp8", "hopper"): Constant(3.8, 0.25, TE_CASTS + "2.19 ms on H200 NVL, fp8_delayed of fp8_tensorwise's products"),
    ("fp8_tensorwise", "hopper"): Constant(6.1, 0.15, TE_CASTS + "3.50 ms on H200 NVL"),
}
"""(recipe, or format of others, architecture) -> bytes at the rate of plain kernels to cast an element: inputs in
forward, gradients of outputs in backward"""
ROUTED = (
    Constant(
        6.0,
        0.25,
        "elements read and written per element of a routed token, forward: gathered by rank, sorted by expert, sorted "
        "back (two each), summed per token (Megatron Core's token dispatcher; the exchange's own traffic is in it)",
    ),
    Constant(7.0, 0.25, "their backward, and the gradient of the router's weights"),
)
"""memory traffic of a mixture's permutations, (forward, backward)"""
PERMUTATION_SHARE = Constant(
    0.42,
    0.25,
    "gathering rows of routed tokens on H200: vLLM's kernel reaches 1.6 to 1.8 TB/s, a tuned one 1.8 to 2.4, of 4.8 "
    "(tile-ai/TileOPs pull request 603)",
)
"""of the memory's rate, which MEMORY_SHARE is for plain kernels"""
STREAMS = Constant(
    4.0,
    0.3,
    "Transformer Engine's products of experts, a kernel each, run in 4 streams; so predicted, 16 of 2048 x 768 x 2048 "
    "reach 564 TFLOP/s on H100 and 8 of 4096 rows 608: measured 554 and 628 (TransformerEngine pull request 2045)",
)

MEMORY_SHARE = Constant(
    0.80, 0.10, "elementwise and norm kernels reach 75 to 90 % of HBM's rate (STREAM on A100: 0.87 to 0.9)"
)
BLACKWELL_MEMORY_SHARE = Constant(
    0.70, 0.10, SDPA + "RMSNorm on GB200 and GB300, 6.0 to 6.2 TB/s forward and 4.8 to 5.5 backward, of 8"
)
BROADCAST_SHARE = Constant(
    0.45, 0.3, "PyTorch on H200: a bias added 0.62 TB/s, tensors of one shape 1.39 (tile-ai/TileOPs pull request 537)"
)
"""rate of a kernel with an operand that is broadcast over a plain kernel's"""

ATTENTION: dict[tuple[str, str], tuple[Constant, Constant]] = {
    ("flash-1", "ampere"): (
        Constant(0.38, 0.15, "arXiv 2307.08691: FlashAttention reaches 30 to 50 % on A100, backward 25 to 35 %"),
        Constant(0.28, 0.15, "the same"),
    ),
    ("flash-2", "ampere"): (
        Constant(0.63, 0.10, "FlashAttention-2, arXiv 2307.08691 sec. 4.1: forward to 73 % of A100's peak"),
        Constant(0.55, 0.10, "the same: backward to 63 %; causal less"),
    ),
    ("flash-1", "hopper"): (
        Constant(0.21, 0.25, "no benchmark published: FlashAttention-2's, by the ratio of the two on A100"),
        Constant(0.16, 0.25, "the same"),
    ),
    ("flash-2", "hopper"): (Constant(0.35, 0.08, FLASH_3), Constant(0.31, 0.10, FLASH_3)),
    ("cudnn", "hopper"): (Constant(0.565, 0.10, FLASH_3), Constant(0.49, 0.10, FLASH_3)),
    ("flash-2", "blackwell"): (
        Constant(0.19, 0.10, SDPA + "373 to 436 TFLOP/s at 8k to 32k on B200, 414 to 438 on GB200"),
        Constant(0.155, 0.10, "the same, backward: 299 to 346; 338 to 360"),
    ),
    ("cudnn", "b200"): (
        Constant(0.62, 0.12, SDPA + "1,171, 1,332 and 1,419 TFLOP/s at 8k, 16k and 32k (an older cuDNN)"),
        Constant(0.495, 0.15, "the same, backward: 943, 1,075, 1,109"),
    ),
    ("cudnn", "blackwell"): (
        Constant(0.70, 0.12, SDPA + "GB200, cuDNN 9.19: 1,335, 1,598 and 1,720 TFLOP/s at 4k, 8k and 32k"),
        Constant(0.59, 0.15, "the same, backward: 1,132, 1,311, 1,473; an older cuDNN is a sixth slower on B200"),
    ),
    ("cudnn", "gb300"): (
        Constant(0.84, 0.12, SDPA + "GB300, cuDNN 9.19: 1,672, 1,887 and 2,014 TFLOP/s at 4k, 8k and 32k"),
        Constant(0.62, 0.15, "the same, backward: 1,195, 1,385, 1,549"),
    ),
    ("flash-2", "cdna"): (
        Constant(0.41, 0.12, AITER + "421 to 450 TFLOP/s at 4k, 431 to 486 at 8k"),
        Constant(0.315, 0.15, "the same, backward: 257 to 339; 314 to 381"),
    ),
    ("flash-2", "mi355x"): (
        Constant(0.52, 0.12, HIPKITTENS + "AITER 1,069, 1,173 and 1,247 TFLOP/s at 4k, 8k and 16k, causal"),
        Constant(0.45, 0.25, "the same, backward: 877, 1,034 and 1,109; of grouped queries a third of that"),
    ),
}
"""(kernel, kind of GPU or architecture) -> share of the bf16 peak at long causal sequences, forward and backward"""
# cuDNN's kernels for Ampere are of that generation; AMD's GPUs have AMD's own, whatever a trainer has elsewhere
ATTENTION |= {("cudnn", place): ATTENTION["flash-2", place] for place in ("ampere", "cdna", "mi355x")}
ATTENTION["cudnn", "b300"] = ATTENTION["cudnn", "gb300"]
NO_MEASUREMENT = 0.42
"""spread of a rate without a measurement on this architecture or of this trainer: nine in ten within a factor of two"""
OTHER_KIND = 0.08
"""further spread of a rate that was measured on another kind of the same generation: shares of B200 and GB200, of
MI300X and MI325X differ by 6 and 16 %"""


def attention(kernel: str, architecture: str, kind: str = "") -> tuple[Constant, Constant]:
    """Share of the peak, forward and backward; FlashAttention-2's where the kernel was not measured."""
    for place in (kind, architecture):
        if (kernel, place) in ATTENTION:
            return ATTENTION[kernel, place]
    forward, backward = ATTENTION["flash-2", architecture]
    unknown = f"no measurement of {kernel} on {architecture}: FlashAttention-2's"
    return replace(forward, spread=NO_MEASUREMENT, source=unknown), replace(
        backward, spread=NO_MEASUREMENT, source=unknown
    )


FLASH_4 = "Dao-AILab/flash-attention pull request 2605, cuDNN on a GPU of 2,500 TFLOP/s"
ATTENTION_HALF = {
    "hopper": Constant(
        400.0,
        0.3,
        FLASH_3 + ": positions at which causal attention runs at half of that; 191, 298, 335 of FlashAttention-2",
    ),
    "blackwell": Constant(1000.0, 0.2, SDPA + "what fits 2k to 32k best on GB200 and GB300, forward and backward"),
}
ATTENTION_HALF["ampere"] = ATTENTION_HALF["hopper"]
ATTENTION_HALF["cdna"] = Constant(1000.0, 0.3, HIPKITTENS + "AITER at 2k to 16k, and " + AITER + "4k and 8k")
WHOLE_HALF = {
    "hopper": Constant(
        150.0,
        0.4,
        "meta-pytorch/tritonbench pull request 1254: 541, 618, 628 and 639 TFLOP/s of FlashAttention-3 at 1k to 8k "
        "without a mask, so 90 to 200 positions",
    ),
    "blackwell": Constant(
        190.0, 0.1, FLASH_4 + ": 980, 1,072, 1,118, 1,147 and 1,157 TFLOP/s at 1k to 16k without a mask, head_dim 64"
    ),
}
"""the same where no position is masked"""
WHOLE_HALF["ampere"] = WHOLE_HALF["cdna"] = WHOLE_HALF["hopper"]
HEAD_64 = {
    "hopper": Constant(0.84, 0.08, "arXiv 2407.08608 fig. 5: head_dim 64 against 128"),
    "blackwell": Constant(0.69, 0.10, FLASH_4 + ": 980 and 1,427 TFLOP/s at 1k without a mask"),
}
HEAD_64["ampere"] = HEAD_64["cdna"] = HEAD_64["hopper"]
SCORE_BYTES = (
    Constant(
        14.0,
        0.15,
        "fp16 scores: product written, fused masked softmax, dropout with its mask, product read (Megatron-LM)",
    ),
    Constant(24.0, 0.15, "their backward: two products, dropout, softmax"),
)
"""memory traffic per position pair and head where scores are stored, (forward, backward); without dropout 8 and 16"""

INSIDE_REDUCE = Constant(
    0.71,
    0.10,
    "nccl-tests, all-reduce of 0.1 to 1 GB in a node: 200 to 235 GB/s of 300 (A100), 360 of 450 without NVLS (H100)",
)
INSIDE_GATHER = Constant(
    0.65,
    0.15,
    "all-gather in a node of 8 H100: 250 GB/s of 450 at 256 MB (Ultra-Scale Playbook), 360 at several GB (nccl-tests)",
)
EXCHANGE_SHARE = Constant(
    0.77,
    0.12,
    "DeepEP: dispatch and combine over 8 H800, 153 and 158 GB/s of 200 (V1), over 8 B200 643 to 740 of 900 (V2); NCCL "
    "370 of 450 for what is not an all-reduce on H100 (NVIDIA/nccl-tests issue 212)",
)
"""all-to-all within a node; across nodes DeepEP reaches 43 to 58 of 50 GB/s, tokens within the node included: no less
than BETWEEN_SHARE"""
INSIDE_BASE_S = Constant(1.5e-5, 0.4, NCCL + ": 8.4 us, and the launch of the kernel on all ranks")
INSIDE_STEP_S = Constant(3.4e-6, 0.3, NCCL)
BETWEEN_SHARE = Constant(0.85, 0.12, "nccl-tests on InfiniBand (about 0.95 of the wire) and EFA (0.73), large messages")
BETWEEN_STEP_S = Constant(1.2e-5, 0.5, NCCL + ": 9.6 to 14 us by version")
EFA_SHARE = Constant(0.73, 0.10, EFA)
EFA_REDUCE_STEP_S = Constant(1.0e-5, 0.5, EFA + ": 6 us per rank at 4 nodes to 14 at 64, over 2 (n - 1) steps")
EFA_GATHER_STEP_S = Constant(
    2.5e-5, 0.5, EFA + ": 30 to 46 us per rank over n - 1 steps at 256 MB, a part of it transfer"
)
SEND_S = Constant(3.0e-5, 0.5, "NCCL send and receive between two GPUs: launch, rendezvous and one network step")
COLLECTIVE_SMS = Constant(
    0.10, 0.5, "share of the GPU that a concurrent collective takes: 16 of 132 multiprocessors; calculon 0.02 to 0.15"
)

TENSOR_HIDDEN = Constant(
    0.4,
    0.3,
    "asynchronous tensor parallelism: 8 to 10 % of the step in PyTorch's announcement, of a quarter exposed",
)

LAUNCH_S = Constant(
    1.0e-5, 0.35, "host time of one eager operation, dispatch, autograd and launch: 5 to 25 us by processor"
)
GRACE = Constant(
    2.6,
    0.2,
    "a forward of nn.Linear takes the host 37.1 us on GB200, 33.2 on GH200 and 13.5 on H100 with Xeon 8480C (NVIDIA/"
    "TransformerEngine issue 2053)",
)
GRACE_HOSTS = ("gh200", "gh200-144gb", "gb200", "gb300")
"""kinds whose host is a Grace CPU -> host time of an operation over that of others"""
GROUPED_PRODUCT_S = Constant(
    3.0e-5,
    0.4,
    "host time of a product of experts, on Blackwell with a host not named: eight of 128 x 2048 x 2048, operands cast "
    "before, take 0.267 ms, as one kernel 0.069 (NVIDIA/TransformerEngine pull request 3134)",
)
INTERLEAVED = Constant(
    2.5,
    0.15,
    "Qwen3-235B-A22B on 64 B200, micro-batches of one sequence: 17.2 s in bf16 and 20.1 in MXFP8 with exchanges of "
    "experts overlapped, 16.0 and 16.9 without, for CPU overhead (NVIDIA-NeMo/Megatron-Bridge pull request 1760). So a "
    "layer's passes take the host 11.3 and 13.2 ms, 2.7 and 2.4 times as long as its operations elsewhere",
)
"""host time of an operation where two micro-batches' passes alternate, each cut into pieces with a stream, an event and
a backward of its own (NVIDIA/Megatron-LM, core/pipeline_parallel/utils.py, ScheduleNode), over that of others"""
SMALL_KERNEL_S = Constant(
    3.8e-6,
    0.4,
    "NVIDIA, Getting Started with CUDA Graphs (2019): a kernel of 2.9 us takes 3.8 us in a stream of such kernels",
)
"""of a router's kernels, which work on a few numbers per token"""
CROSSING_LAYER_S = Constant(3.5e-3, 0.4, "observed in the playbook's runs alone: see Behaviour.blocking_sends")
CROSSING_RANK_S = Constant(2.6e-3, 0.4, "the same")
"""host seconds of a layer's passes, and per tensor-parallel rank, while sends across nodes block the host"""
SEND_WAIT_S = Constant(
    1.0,
    1.0,
    "the same: seconds per micro-batch on 64 nodes, from about 1.2 in every run there to none on few",
)
WIDEST_SEEN = 64.0
SEND_WAIT_POWER = 2.5
"""nodes to which SEND_WAIT_S refers, and the power of their number with which it grows: likewise observed"""
STEP_S = Constant(1.0e-2, 0.7, "batch, loss and norm read back, logging: a few host synchronisations per step")
"""what a step takes beyond its parts"""

FACTORS: dict[str, Constant] = {
    "pipeline": Constant(1.0, 0.08, "waits between stages that the schedule's bubble leaves out"),
    "tensor across nodes": Constant(1.0, 0.2, "collectives per layer over a network: few measurements"),
    "doublings of nodes": Constant(
        1.0,
        0.02,
        "per doubling: the slowest of n GPUs alone 0.4 % (5 % between the GPUs of a node, extreme values of a normal "
        "distribution); see DOUBLING",
    ),
    "context": Constant(1.0, 0.12, "load balance of causal attention by ring or all-gather"),
    "experts": Constant(
        1.0,
        0.28,
        "versions of kernels: of one layout NVIDIA's containers of 2025-09 to 2026-08 took up to 2.5 times as long as "
        "the fastest (NeMo's performance summary): nine in ten in that range",
    ),
    "recompute": Constant(1.0, 0.05, "what is recomputed differs between trainers"),
    "compiled": Constant(1.0, 0.05, "what a compiler fuses"),
}
"""what a layout may use -> how far its step time may be off for it, in a trainer and cluster where no run tested it"""
DOUBLING = Constant(
    1.0, 0.05, "each by itself: 5 % from 8,192 to 16,384 GPUs, congestion included (Llama 3, arXiv 2407.21783, table 4)"
)
TRAINER = Constant(1.0, 0.06, "this trainer and cluster against the model, the same for every layout")
RESIDUAL = Constant(1.0, 0.06, "between a layout and its neighbours")
UNEXPLAINED = Constant(
    1.0,
    0.10,
    "between layouts in all, of trainers with a profile: a mean error of 6 to 8 % on rows that had not been looked at "
    "before (vTrain's 18 to 175B 8.1, NeMo in fp8 8.4, in fp4 6.4, Llama-3.1-405B in MLPerf 7.3)",
)
NOISE = Constant(1.0, 0.04, "between two runs of one layout: 1 to 5 % (docs/research/measurement.md)")
