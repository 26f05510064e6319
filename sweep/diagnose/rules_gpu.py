"""Lines of the GPU: its memory, CUDA libraries, the driver's Xid reports.

Sources: PyTorch c10/cuda/CUDACachingAllocator.cpp and CUDAException.cpp, NVIDIA's "Xid Errors" guide and
open-gpu-kernel-modules.
"""

from __future__ import annotations

from sweep.diagnose.model import LineRule, Weight, either, never_after, then
from sweep.outcomes import Outcome

_FIT = (
    "The configuration needs more GPU memory: lower the micro-batch size, raise tp, pp or the ZeRO stage, or recompute."
)
_BUG = "Run once with CUDA_LAUNCH_BLOCKING=1 to find the kernel; check indices, shapes and custom kernels."

GPU: tuple[LineRule, ...] = (
    # Xids that a faulty program can cause as well as a faulty GPU (13, 31, 43, 45, …): a CUDA error in a rank wins.
    LineRule(
        "xid-application",
        Outcome.XID_HARDWARE,
        Weight.CONSEQUENCE,
        never_after(
            r"NVRM: Xid \([^)]{0,60}\): (?:8|13|31|32|43|45|68|69)\b", r"caused by previous Xid (?:7[49]|1[1-5]\d)\b"
        )
        + r"|amdgpu.{0,60}(?:GPU reset begin|\bring \S{1,30} timeout)",
        advice="This often comes from the program itself: run it on another node; if it follows the program, look "
        "for an illegal access, else have the GPU checked.",
    ),
    # 63 and 92: ECC housekeeping, the job may go on; so it may after NVLink's nonfatal errors (144-150).
    LineRule(
        "xid-recoverable",
        Outcome.XID_HARDWARE,
        Weight.CONSEQUENCE,
        r"NVRM: Xid \([^)]{0,60}\): (?:(?:63|92|154)\b|(?:14[4-9]|150), \w{1,20} Nonfatal\b)",
        advice="The GPU asks for a reset, remapped a memory row, or survived an error of NVLink: drain the node and "
        "reset the GPU before it is used again.",
    ),
    # 94: an uncorrectable error of memory that ended the process which read it, and no other.
    LineRule(
        "xid-contained",
        Outcome.XID_HARDWARE,
        Weight.CAUSE,
        r"NVRM: Xid \([^)]{0,60}\): 94\b",
        advice="The memory error was contained: only this process ended, and the node need not be drained. Run again; "
        "reset the GPU when it is idle, so that the row is remapped.",
    ),
    LineRule(
        "gpu-lost",
        Outcome.XID_HARDWARE,
        Weight.CAUSE,
        r"NVRM: Xid \([^)]{0,60}\): \d|fallen off the bus|gpu is lost|rminitadapter failed|rm_init_adapter failed"
        r"|unable to determine the device handle|cannot attach gpu|gsp rpc|gpu requires reset|sxid \(pci"
        r"|uncorrectable (?:ecc|nvlink|double|memory)|ECC error encountered|hardware stack error"
        r"|double bit (?:ecc )?error|row remapping failure|uncorrectable .{0,30}error",
        advice="Run again on other nodes; have this GPU drained, reset and checked (nvidia-smi -q, dcgmi diag).",
    ),
    # The wording differs between releases; XLA reports RESOURCE_EXHAUSTED; NCCL reports the driver's error 2.
    # The allocator asks NVML for the report of this error; where that fails, its assertion is all that is printed.
    LineRule(
        "oom-cuda",
        Outcome.OOM_CUDA,
        Weight.CAUSE,
        either(
            r"(?:CUDA|HIP|XPU|NPU|GPU|device).{0,40}out of memory|out of memory.{0,40}(?:GPU|CUDA|device)",
            r"(?:torch|cuda|accelerator)\w{0,40}\.OutOfMemoryError|^\W*OutOfMemoryError",
            never_after(r"(?<!\w)OutOfMemoryError: ", "Java"),
            r"cudaErrorMemoryAllocation|(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER)_STATUS_ALLOC_FAILED",
            then("RESOURCE_EXHAUSTED: ", "memory|alloc"),
            r"Cuda failure (?:2 )?'?out of memory",
            then("tried to allocate ", "GPU"),
            then("INTERNAL ASSERT FAILED at ", "CUDACachingAllocator"),
        ),
        advice=_FIT,
    ),
    LineRule(
        "cuda-device-ordinal",
        Outcome.CONFIG_ERROR,
        Weight.SUSPECT,
        r"(?<!\d ')invalid device (?:ordinal|id\b)",
        advice="More ranks than visible GPUs: check gpus per node, CUDA_VISIBLE_DEVICES and how local ranks map to "
        "devices.",
    ),
    # Ours: bench_workloads/process.py. A node without its GPUs may be the only one: it is tried on another.
    LineRule(
        "gpu-not-seen",
        Outcome.CUDA_ERROR,
        Weight.CAUSE,
        r"the site states gpu: \S+, but torch sees no GPU",
        advice="Make the GPUs visible to the ranks, as the message says: driver, torch's build, the job's GPU request "
        "(--gres), CUDA_VISIBLE_DEVICES; or state gpu: cpu in the site.",
    ),
    LineRule(
        "gpu-of-another-kind",
        Outcome.CONFIG_MISMATCH,
        Weight.CAUSE,
        r"the site states gpu: \S+, but this rank's device is",
        advice="Correct gpu in the site, or request the kind that it states (constraint, --gres=gpu:KIND:N): the peak "
        "and the memory limit are those of the stated kind.",
    ),
    LineRule(
        "cuda-not-there",
        Outcome.CUDA_ERROR,
        Weight.SUSPECT,
        r"no CUDA-capable device|Found no NVIDIA driver|No CUDA GPUs are available|driver version is insufficient"
        r"|driver on your system is too old"
        r"|Failed to initialize NVML|not compiled with CUDA|CUDA unknown error|system not yet initialized"
        r"|Driver/library version mismatch|" + then("Error", "CUDA initialization"),
        advice="The GPUs cannot be used from this process: compare driver and toolkit versions, the job's GPU request, "
        "CUDA_VISIBLE_DEVICES and, on NVSwitch machines, the fabric manager.",
    ),
    LineRule(
        "cuda-error",
        Outcome.CUDA_ERROR,
        Weight.SUSPECT,
        r"^(?!.*Warning: ).*(?:(?<!no )CUDA(?: driver| runtime)? error(?!s might| handling)"
        r"|(?<!\w)cudaError[A-Z(]|(?:CUBLAS|CUDNN|CUSOLVER|CUFFT)_STATUS_(?!SUCCESS)\w"
        r"|CUFFT error|cuDNN (?:Frontend )?error|illegal memory access was|device-side assert triggered|Triton Error \["
        r"|Cuda failure|CUDA_ERROR_(?!HANDL)\w"
        r"|HIP error|misaligned address|unspecified launch failure|no kernel image is available|CUDA exception"
        r"|Memory access fault by GPU|HW Exception by GPU|HSA_STATUS_ERROR_\w)",
        advice=_BUG,
    ),
    LineRule(
        "device-assert",
        Outcome.CUDA_ERROR,
        Weight.SUSPECT,
        then(r"(?:block|thread): \[\d{1,9},\s?\d{1,9},\s?\d{1,9}\]", then("Assertion `", "` failed")),
        advice="An index is out of range on the device: compare token ids and labels with the embedding's and the "
        "classes' size.",
    ),
)
