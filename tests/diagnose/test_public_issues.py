"""Ends that people reported in public issues: each line rewritten, with names and numbers of our own.

The issue names who met it: `owner/name#number` on GitHub. The outcome is what the issue's thread found, not what the
rules said. Each has one outcome; where a line alone leaves two, the comment says why it is this one.
"""

from __future__ import annotations

import pytest

from sweep.diagnose.diagnose import diagnose_text
from sweep.outcomes import NO_FAILURE

_ECC = "uncorrectable ECC error encountered"
_LATE = "CUDA kernel errors might be asynchronously reported at some other API call.\n"
_WATCHDOG = "[rank1]:[E101 10:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: "
_STEPS = "".join(f"step {i} loss {3 - i / 10:.1f}\n" for i in range(1, 8))

ENDS: list[tuple[str, str, str]] = [
    # --- host memory
    (
        "coqui-ai/STT#2238",
        "oom_host",
        "Epoch 0 | Steps: 9 | Loss: 24.5\nslurmstepd: error: Job 18 exceeded memory limit (6 > 5), being killed\n"
        "slurmstepd: error: Exceeded job memory limit\nslurmstepd: error: *** JOB 18 ON n1 CANCELLED AT 2022-01 ***",
    ),
    (
        "openbabel/openbabel#2658",
        "oom_host",
        "slurmstepd-n7: error: Step 11.0 exceeded memory limit (5 > 2), being killed\nsrun: Exceeded job memory limit\n"
        "slurmstepd-n7: error: *** STEP 11.0 ON n7 CANCELLED AT 2023-01-01 ***\nsrun: error: n7: task 0: Killed",
    ),
    (
        "nextflow-io/nextflow#5932",
        "oom_host",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=113.0. Some of the step tasks have been OOM Killed.\n"
        "srun: error: n6: task 0: Out Of Memory",
    ),
    ("lanl/PyBNF#118", "oom_host", "slurmstepd: error: Detected 2 oom-kill event(s) in step 37.batch cgroup."),
    (
        "pepkit/geofetch#13",
        "oom_host",
        "slurmstepd: error: Exceeded job memory limit at some point.\nsrun: error: n2: task 0: Out Of Memory\n"
        "srun: Terminating job step 27.0",
    ),
    (
        "deepspeedai/DeepSpeed#3232",
        "oom_host",  # killed with signal 9, and no word of a scheduler or a user: the kernel's want of memory
        "[INFO] [launch.py:428:sigkill_handler] Killing subprocess 47\n[ERROR] [launch.py:434:sigkill_handler] "
        "['python3', '-u', 'main.py', '--zero_stage', '2'] exits with return code = -9",
    ),
    # --- crashes
    (
        "deepspeedai/DeepSpeed#3989",
        "segfault",
        "[INFO] [launch.py:315:sigkill_handler] Killing subprocess 22\n"
        "[ERROR] [launch.py:321:sigkill_handler] ['python', '-u', 'train.py'] exits with return code = -11",
    ),
    (
        "hafs-community/HAFS#101",
        "segfault",  # a bus error is a fault of memory as well
        "srun: error: n-18: task 28: Bus error\nsrun: Terminating job step 34.0\n"
        "slurmstepd: error: *** STEP 34.0 ON n-01 CANCELLED AT 2021-01-01T20:22:22 ***",
    ),
    # --- the GPU
    ("huggingface/accelerate#1192", "xid_hardware", f"RuntimeError: CUDA error: {_ECC}\nCompile with ..."),
    (
        "pytorch/pytorch#63174",
        "xid_hardware",
        f"RuntimeError: transform: failed to synchronize: cudaErrorECCUncorrectable: {_ECC}\n"
        f"terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: {_ECC}",
    ),
    (
        "NVIDIA/semantic-segmentation#33",
        "xid_hardware",
        f"RuntimeError: cuda runtime error (39) : {_ECC} at THCCachingHostAllocator.cpp:1\n"
        "terminate called without an active exception",
    ),
    (
        "nagadit/DeepFaceLab_Linux#89",
        "xid_hardware",
        f"F statusor.cc:34] Internal: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_ECC_UNCORRECTABLE: {_ECC}",
    ),
    (
        "wilicc/gpu-burn#1",
        "xid_hardware",
        "[78.1] NVRM: GPU at PCI:0000:02:00: GPU-1\n[78.2] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.",
    ),
    (
        "rwth-i6/returnn#1486",
        "xid_hardware",
        "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error",
    ),
    (
        "ACEsuit/mace#435",
        "config_error",  # more ranks than GPUs: no repetition helps
        f"    torch.cuda.set_device(local_rank)\nRuntimeError: CUDA error: invalid device ordinal\n{_LATE}",
    ),
    (
        "flatironinstitute/cryoSBI#66",
        "cuda_error",
        " 65%|##   | 98/150 [18:47<9:58, 690s/epoch, loss=-1.01]\nTraceback (most recent call last):\n"
        f'  File "a.py", line 36, in step\nRuntimeError: CUDA error: unspecified launch failure\n{_LATE}',
    ),
    ("rwth-i6/returnn#1494", "cuda_error", f"RuntimeError: CUDA error: initialization error\n{_LATE}"),
    (
        "ashleve/lightning-hydra-template#229: on one kind of GPU only",
        "cuda_error",  # NCCL passes on what CUDA returned to it
        "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:45, unhandled cuda error, NCCL version 21.0.3",
    ),
    # --- communication
    (
        "facebookresearch/ParlAI#3084",
        "nccl_error",
        "RuntimeError: NCCL error in: NCCLUtils.hpp:82, invalid argument, NCCL version 2.4.8\n"
        "srun: error: n0: tasks 2-7: Exited with exit code 1",
    ),
    (
        "NVIDIA/nccl#902",
        "nccl_error",  # two cards cannot talk to each other, says the thread: other nodes help, a repetition does not
        "n1:5:6 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129\n"
        "RuntimeError: NCCL error in: a.cpp:1, remote process exited or there was a network error, NCCL version 2.14.3",
    ),
    (
        "NVIDIA/nccl-tests#24",
        "nccl_error",  # the first of two: the illegal access is on another GPU, after it
        "g5:7:4 [0] net_ib.cu:788 NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129\n"
        "g5:7:4 [0] NCCL INFO include/net.h:34 -> 2\n"
        "g5:7:7 [1] init.cu:194 NCCL WARN Cuda failure 'an illegal memory access was encountered'",
    ),
    (
        "NVIDIA/Megatron-LM#1207",
        "nccl_timeout",
        f"{_WATCHDOG}WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) ran for 600013 milliseconds "
        "before timing out.",
    ),
    (
        "NVIDIA/nccl#1610",
        "nccl_timeout",
        f"{_STEPS}{_WATCHDOG}WorkNCCL(SeqNum=216, OpType=ALLTOALL_BASE, Timeout(ms)=600000) ran for 6045 milliseconds "
        "before timing out.\n[rank1]:[E101 ProcessGroupNCCL.cpp:1795] [PG ID 11 PG GUID 119 Rank 1] Exception (either "
        "an error or timeout) detected by watchdog at work: 216, last enqueued NCCL work: 220",
    ),
    (
        "snowflakedb/ArcticTraining#219",
        "nccl_timeout",  # the watchdog ended it, not the silence of all ranks
        "[rank7]:[E626 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 7] ProcessGroupNCCL's watchdog "
        "got stuck for 480 seconds without making progress in monitoring enqueued collectives.",
    ),
    # --- imports
    (
        "EleutherAI/gpt-neox#1079",
        "import_error",
        "    import flash_attn_2_cuda\nImportError: /env/flash_attn_2_cuda.cpython-38-x86_64-linux-gnu.so: "
        "undefined symbol: _ZN3c104cuda9allocatorE",
    ),
    (
        "Dao-AILab/flash-attention#631",
        "import_error",
        'Traceback (most recent call last):\n  File "test.py", line 7, in <module>\n'
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
    ),
    (
        "huggingface/autotrain-advanced#292",
        "import_error",
        "ImportError: libcudart.so.12: cannot open shared object file: No such file\n\nThe above exception "
        'was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File "m", line\n'
        "RuntimeError: Failed to import transformers.models.llama because of the following error:\nlibcudart.so.12",
    ),
    # --- numbers
    (
        "alibaba/Pai-Megatron-Patch#60",
        "nan_loss",
        "    assert not total_norm.isnan(), (\n"
        "AssertionError: Rank 3: found NaN in local grad norm in backwards pass. Device: 3, node: n133",
    ),
    (
        "NVIDIA/Megatron-LM#780",
        "nan_loss",
        "AssertionError: Rank 11: found NaN in local grad norm in backward pass before data-parallel communication "
        "collective. Device: 3",
    ),
    (
        "bigscience-workshop/Megatron-DeepSpeed#396",
        "nan_loss",
        " iteration 5426/ 250000 | loss scale: 1.0 | grad norm: nan | number of nan iterations:   0 |\n"
        " iteration 5427/ 250000 | loss scale: 1.0 | grad norm: nan | number of nan iterations:   0 |\n",
    ),
    # --- the disk
    (
        "open-mmlab/mmdetection#12069",
        "disk_full",
        'Saving checkpoint at 14 epochs\nTraceback (most recent call last):\n  File "a.py", line 476, in save\n'
        "OSError: [Errno 122] Disk quota exceeded",
    ),
    (
        "h2oai/h2o-llmstudio#214",
        "disk_full",
        "RuntimeError: [enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file data/2: "
        "file write failed\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most "
        'recent call last):\n  File "s.py", line 442, in save\n'
        "RuntimeError: [enforce fail at inline_container.cc:337] . unexpected pos 1100 vs 1000",
    ),
    (
        "hiyouga/LlamaFactory#1223",
        "disk_full",
        "RuntimeError: [enforce fail at inline_container.cc:445] . PytorchStreamWriter failed writing file data/17: "
        "file write failed",
    ),
    # --- Slurm
    (
        "radical-cybertools/radical.pilot#2109",
        "config_error",
        "srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification",
    ),
    (
        "verl-project/verl#548",
        "config_error",
        "srun: error: Unable to create step for job 7: Requested node configuration is not available",
    ),
    (
        "eth-cscs/DLA-Future#337",
        "config_error",
        "srun: Job 29 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
        "srun: error: Unable to create step for job 29: Memory required by task is not available",
    ),
    (
        "ZettaAI/zetta_utils#671",
        "time_limit",
        "srun: Job step aborted: Waiting up to 47 seconds for job step to finish.\n"
        "slurmstepd: error: *** JOB 49 ON n1 CANCELLED AT 2024-01-01T09:09:37 DUE TO TIME LIMIT ***",
    ),
    (
        "desihub/desitarget#628",
        "time_limit",
        "srun: Force Terminated job 32\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "slurmstepd: error: *** STEP 32.0 ON n34 CANCELLED AT 2020-01-01T02:59:56 DUE TO TIME LIMIT ***\n"
        "srun: error: n34: tasks 2,4-5,7: Terminated\nsrun: Terminating job step 32.0",
    ),
    (
        "SystemsGenetics/GEMmaker#242",
        "preempted",
        "slurmstepd: error: *** JOB 32 ON n119 CANCELLED AT 2021-01-01T13:05:36 DUE TO PREEMPTION ***",
    ),
    (
        "facebookincubator/submitit#1708",
        "preempted",
        "submitit WARNING (2022-01-01 02:06:11,453) - Caught signal SIGUSR2 on n1: this job is preempted.\n"
        "slurmstepd: error: *** JOB 60 ON n1 CANCELLED AT 2022-01-01T02:06:12 DUE TO JOB REQUEUE ***\n"
        "submitit WARNING (2022-01-01 02:06:12,301) - Bypassing signal SIGTERM\n"
        "slurmstepd: error: Failed to send MESSAGE_TASK_EXIT: Connection refused\n"
        "srun: error: n1: tasks 2-3: Exited with exit code 1",
    ),
    (
        "ai4d-iasc/trixie#45",
        "node_fail",  # Slurm drains a node whose processes outlive their signals ("Kill task failed")
        "[2020-12-14T09:43:55.500] [63.0] error: *** STEP 63.0 ON n106 CANCELLED AT 2020-12-14T09:43:55 ***\n"
        "[2020-12-14T09:44:56.002] [63.0] error: *** STEP 63.0 STEPD TERMINATED ON n106 AT 2020-12-14T09:44:56 DUE TO "
        "JOB NOT ENDING WITH SIGNALS ***",
    ),
    # --- GPU memory
    (
        "murong-xu/CADS#4",
        "oom_cuda",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 "
        "GiB of which 12.73 GiB is free.\n\nDuring handling of the above exception, another exception occurred:\n",
    ),
    (
        "perrying/ssn-pytorch#11",
        "oom_cuda",
        "RuntimeError: CUDA out of memory. Tried to allocate 7.7 GiB (GPU 0; 23.6 GiB total capacity; 18.6 GiB already "
        "allocated; 2.7 GiB free; 19.0 GiB reserved in total by PyTorch)",
    ),
    (
        "PufferAI/PufferLib#487",
        "oom_cuda",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 3.69 GiB. GPU 0 has a total capacity of 3.94 GiB of "
        "which 1.47 GiB \nis free.",
    ),
    # --- ports, shared memory
    (
        "om-ai-lab/VLM-R1#289",
        "port_in_use",
        "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, "
        "code: -98, name: EADDRINUSE, message: address already in use.",
    ),
    (
        "meta-pytorch/torchft#30",
        "port_in_use",
        'Traceback (most recent call last):\n  File "lighthouse", line 8, in <module>\n'
        "RuntimeError: Address already in use (os error 98)",
    ),
    (
        "meta-pytorch/torchtune#1025",
        "port_in_use",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The "
        "server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
    ),
    (
        "hkchengrex/STCN#132",
        "disk_full",  # /dev/shm, a file system, is full
        "RuntimeError: DataLoader worker (pid 46) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
    ),
    (
        "THU-DA-6D-Pose-Group/GDR-Net#16",
        "disk_full",  # /dev/shm, a file system, is full
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
        "RuntimeError: DataLoader worker (pid(s) 32) exited unexpectedly",
    ),
    # --- nothing failed
    (
        "galaxyproject/galaxy#2309: the step was successful",
        NO_FAILURE,
        f"{_STEPS}Training completed\nslurmstepd: error: Exceeded step memory limit at some point. Step may have been "
        "partially swapped out to disk.",
    ),
    (
        "modelscope/ms-swift#6836",
        NO_FAILURE,
        " iteration 1530/ 1926 | lm loss: 3.5E-01 | loss scale: 1.0 | grad norm: 11.293 | number of "
        "skipped iterations:   0 | number of nan iterations:   0 |",
    ),
    (
        "urllib3, a line of its own and no issue",
        NO_FAILURE,
        "WARNING Retrying (Retry(total=4)) after connection broken by 'ConnectionResetError(104, 'Connection reset by "
        "peer')': /api\nTraining completed",
    ),
    (
        "rccl, a line of its own and no issue",
        NO_FAILURE,
        'n1:1:1 [0] NCCL WARN Missing "iommu=pt" from kernel command line!\nstep 1 loss 3.0\ndone\n',
    ),
]


@pytest.mark.parametrize(("outcome", "text"), [row[1:] for row in ENDS], ids=[row[0].split(":")[0] for row in ENDS])
def test_an_end_that_was_reported_in_public_has_its_outcome(outcome: str, text: str) -> None:
    assert str(diagnose_text(text).outcome or NO_FAILURE) == outcome


def test_a_memory_limit_that_was_met_at_some_point_is_the_end_where_nothing_better_is_known() -> None:
    met = "slurmstepd: error: Exceeded step memory limit at some point.\n"
    assert str(diagnose_text(met).outcome) == "oom_host"
    missing = "ModuleNotFoundError: No module named 'x'\n"
    assert str(diagnose_text(missing + met).outcome) == "import_error"
