"""More forms of messages, collected after the first measurement: they guard the rules, they are no check of them."""

from __future__ import annotations

import pytest

from sweep.diagnose.diagnose import diagnose_text
from sweep.diagnose.rules import RULES
from sweep.diagnose.scan import scan
from sweep.outcomes import NO_FAILURE
from tests.support import issues_later, issues_of_launch
from tests.support.log_messages import HEALTHY, MESSAGES

FORMS: list[tuple[str, str]] = [
    (
        "config_error",
        "bench_workloads.trainers.driver.driver.TrainerEndedError: command ended without error, but reported 0 of 6 "
        "iterations to measure: `iteration` of params.metrics, 'epoch {number}, step', matched no line; the last ones "
        "were 'step 5: loss 2.31', 'step 6: loss 2.30'",
    ),
    (
        "nan_loss",
        "bench_workloads.transformer.measure.NotANumberError: loss or gradient norm is not finite at iteration 1: "
        "loss 6.931472301483154, gradient norm nan",
    ),
    (
        "cuda_error",
        "bench_workloads.process.NoGpuError: the site states gpu: h100, but torch sees no GPU: The NVIDIA driver on "
        "your system is too old (found version 12020) (torch 2.13.0+cu130, built for CUDA 13.0). Update",
    ),
    (
        "config_mismatch",
        "bench_workloads.process.WrongGpuError: the site states gpu: h100, but this rank's device is NVIDIA H200. "
        "State gpu: h200 in the site",
    ),
    (
        "config_error",
        "srun: error: Unable to allocate resources: Invalid account or account/partition combination specified",
    ),
    (
        "config_error",
        "sbatch: error: invalid partition specified: gpu\nsbatch: error: Batch job submission failed: "
        "Invalid partition name specified",
    ),
    ("config_error", 'srun: error: Invalid numeric value "8g" for --cpus-per-task.'),
    (
        "config_error",
        "AssertionError: global batch size (100) is not divisible by micro batch size (4) times data parallel size (8)",
    ),
    ("config_error", "ValueError: num_heads (12) must be divisible by tensor parallel size 8"),
    ("config_error", "RuntimeError: Expected world_size to be 8 but got 4"),
    ("config_error", "assert args.seq_length % args.context_parallel_size == 0"),
    ("config_error", "AssertionError: number of layers should be divisible by pipeline parallel size"),
    ("config_error", "train.py: error: argument --tp: invalid int value: 'x'"),
    ("config_error|python_exception", "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'"),
    ("config_error", "pydantic.error_wrappers.ValidationError: 3 validation errors for DeepSpeedZeroConfig"),
    ("config_error", "slurmstepd: error: execve(): /usr/bin/pythn: No such file or directory"),
    (
        "config_error",
        "slurmstepd: error: couldn't chdir to `/home/x': No such file or directory: going to /tmp "
        "instead\npython: can't open file 'train.py': [Errno 2] No such file or directory",
    ),
    ("cuda_error", "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    (
        "cuda_error",
        "RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported",
    ),
    (
        "cuda_error",
        "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: an illegal "
        "memory access was encountered",
    ),
    ("cuda_error", "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    (
        "cuda_error",
        "[rank0]:[E ProcessGroupNCCL.cpp:1414] [PG 0 Rank 0] Process group watchdog thread terminated "
        "with exception: CUDA error: unspecified launch failure",
    ),
    ("cuda_error", "RuntimeError: CUDA error: misaligned address"),
    ("cuda_error", "RuntimeError: CUDA error: invalid argument"),
    ("cuda_error", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    ("cuda_error", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."),
    ("cuda_error", "AssertionError: Torch not compiled with CUDA enabled"),
    (
        "disk_full",
        "safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: "
        'StorageFull, message: "No space left on device" })',
    ),
    ("disk_full", "RuntimeError: PytorchStreamWriter failed writing central directory: file write failed"),
    ("disk_full", "OSError: Not enough disk space. Needed: 1.2 GiB (download: 600 MiB)"),
    ("disk_full", "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 13123 vs 13017"),
    ("disk_full", "tar: write error: Disk quota exceeded"),
    ("disk_full", "RuntimeError: unable to write to file </torch_123_456>"),
    (
        "disk_full",
        "RuntimeError: unable to open shared memory object </torch_4321> in read-write mode: No space "
        "left on device (28)",
    ),
    (
        "import_error",
        "ImportError: cannot import name 'LlamaFlashAttention2' from 'transformers.models.llama.modeling_llama'",
    ),
    ("import_error", "OSError: libcudart.so.11.0: cannot open shared object file: No such file or directory"),
    ("import_error", "/bin/python: No module named torch.distributed.run"),
    ("import_error", "RuntimeError: Error building extension 'fused_adam': [1/3] /usr/local/cuda/bin/nvcc"),
    (
        "import_error",
        "RuntimeError: Failed to import transformers.trainer because of the following error (look up to "
        "see its traceback):\nNo module named 'accelerate'",
    ),
    (
        "nan_loss",
        "RuntimeError: Rank 0, node n1, device 0, iteration 100: Unexpected result nan (message='found "
        "NaN in local forward loss calculation')",
    ),
    ("nan_loss", "loss: nan | grad_norm: nan"),
    ("nan_loss", "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05}"),
    ("nan_loss", "lm loss value: nan | lm loss PPL: nan"),
    ("nan_loss", "Step 100/1000: loss=nan lr=0.0001"),
    ("nan_loss", "train_loss=nan.0, val_loss=nan"),
    ("nan_loss", "AssertionError: Loss is NaN at step 35"),
    ("nan_loss", "ERROR: NaN or Inf found in input tensor."),
    ("nan_loss", "RuntimeError: Function 'MseLossBackward0' returned nan values in its 0th output."),
    (
        "nan_loss",
        "ValueError: Expected parameter loc (Tensor of shape (64, 2)) of distribution Normal to satisfy "
        "the constraint Real(), but found invalid values:\ntensor([[nan, nan]])",
    ),
    ("nan_loss", "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0"),
    (
        "nan_loss",
        " iteration 10 | lm loss: nan | loss scale: 1.0 | number of skipped iterations: 0 | number of "
        "nan iterations: 1 |",
    ),
    (
        "nccl_error",
        "node1:1:1 [0] misc/ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed with error Connection "
        "timed out errno 110",
    ),
    (
        "nccl_error",
        "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving "
        "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: "
        "Connection reset by peer",
    ),
    (
        "nccl_timeout",
        "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving "
        "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: "
        "Socket Timeout",
    ),
    ("nccl_error", "RuntimeError: NCCL communicator was aborted on rank 3."),
    ("nccl_error", "include/socket.h:409 NCCL WARN Net : Connection closed by remote peer"),
    (
        "nccl_error",
        "n1:1:1 [0] NCCL INFO Could not enable P2P between dev 1\nncclInternalError: Internal check failed.",
    ),
    (
        "nccl_error",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d "
        "store has failed. See inner exception for details.",
    ),
    ("nccl_timeout", "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"),
    ("nccl_timeout", "RuntimeError: [1]: Ranks 0 failed to pass monitoredBarrier in 30000 ms"),
    (
        "nccl_timeout",
        "[E ProcessGroupNCCL.cpp:828] Some NCCL operations have failed or timed out. Due to the "
        "asynchronous nature of CUDA kernels, subsequent GPU operations might run on "
        "corrupted/incomplete data.",
    ),
    (
        "nccl_timeout",
        "torch.distributed.DistBackendError: NCCL error: ... [Rank 3] NCCL watchdog thread terminated "
        "with exception: [Rank 3] Watchdog caught collective operation timeout",
    ),
    ("nccl_timeout", "RuntimeError: Timed out waiting for all ranks at barrier"),
    ("node_fail", "srun: error: slurm_receive_msgs: [[n1]:6818] failed: Zero Bytes were transmitted or received"),
    ("node_fail", "srun: error: Nodes n3 are still not ready"),
    ("node_fail", "Job 12 State=NODE_FAIL"),
    ("node_fail", "[2024-01-01T00:00:00] error: Nodes node[3-4] not responding, setting DOWN"),
    (
        "oom_host",
        "slurmstepd: error: poll(): Bad address\nslurmstepd: error: Detected 3 oom-kill event(s) in step "
        "1.batch cgroup.",
    ),
    (
        "oom_host",
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 0 (pid: "
        "44260) of binary: /usr/bin/python",
    ),
    ("oom_host", "train.sh: line 12: 12345 Killed                  python train.py"),
    ("oom_host", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
    ("oom_host", "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB for an array with shape (1,)"),
    ("oom_host", "OSError: [Errno 12] Cannot allocate memory"),
    ("oom_cuda|oom_host", "RuntimeError: CUDA error: out of memory\nkernel: python invoked oom-killer"),
    (
        "oom_cuda",
        "RuntimeError: CUDA out of memory. Tried to allocate 1024.00 MiB (GPU 0; 10.92 GiB total "
        "capacity; 7.09 GiB already allocated; 622.50 MiB free; 8.83 GiB reserved in total by PyTorch) "
        "If reserved memory is >> allocated memory try setting max_split_size_mb",
    ),
    ("oom_cuda", "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)"),
    ("oom_cuda", "OutOfMemoryError: CUDA out of memory."),
    ("oom_cuda", "Cuda failure 2 'out of memory'"),
    ("port_in_use", "RuntimeError: Address already in use"),
    (
        "port_in_use",
        "[W socket.cpp:426] [c10d] The server socket cannot be initialized on [::]:29500 (errno: 97 - "
        "Address family not supported by protocol).\nRuntimeError: The server socket has failed to bind "
        "to 0.0.0.0:29500 (errno: 98 - Address already in use)",
    ),
    (
        "port_in_use",
        "ConnectionError: Tried to launch distributed communication on port `29500`, but another process "
        "is utilizing it. Please specify a different port",
    ),
    (
        "port_in_use",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in "
        "use).",
    ),
    ("preempted", "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2022-09-13T17:50:05 DUE TO PREEMPTION ***"),
    ("preempted", "submitit WARNING (2021-03-15) - Caught signal SIGUSR2 on n1: this job is preempted."),
    (
        "python_exception",
        "RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 1",
    ),
    ("python_exception", "AttributeError: 'NoneType' object has no attribute 'shape'"),
    (
        "python_exception",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    ),
    ("python_exception", "NotImplementedError: Cannot copy out of meta tensor; no data!"),
    ("python_exception", "torch._dynamo.exc.InternalTorchDynamoError: bad"),
    ("python_exception", "RuntimeError: DataLoader worker (pid(s) 3216) exited unexpectedly"),
    (
        "python_exception",
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
    ),
    ("python_exception", "RuntimeError: Error(s) in loading state_dict for GPT:\n\tsize mismatch for wte.weight"),
    ("segfault", "Fatal Python error: Segmentation fault"),
    ("segfault", "train.sh: line 3: 12345 Segmentation fault      (core dumped) python train.py"),
    ("segfault", "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGSEGV"),
    ("segfault", "free(): invalid pointer\nAborted (core dumped)"),
    ("segfault", "!!!!!!! Segfault encountered !!!!!!!"),
    (
        "segfault",
        "ERROR: Unexpected segmentation fault encountered in worker.\nRuntimeError: DataLoader worker "
        "(pid 1) is killed by signal: Segmentation fault.",
    ),
    ("segfault", "[n1:123] *** Process received signal ***\n[n1:123] Signal: Bus error (7)"),
    ("time_limit", "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2022-01-01T00:00:00 DUE TO TIME LIMIT ***"),
    ("time_limit", "=>> PBS: job killed: walltime 3624 exceeded limit 3600"),
    (
        "time_limit",
        "submitit ERROR - Submitted job triggered an exception\nsubmitit.core.utils.UncompletedJobError: "
        "Job not requeued because: timed-out and not checkpointable.",
    ),
    (
        "unknown",
        "srun: error: n1: task 1: Exited with exit code 1\nsrun: launch/slurm: _step_signal: Terminating StepId=1.0",
    ),
    ("unknown", "srun: error: n1: tasks 0-7: Terminated"),
    ("unknown", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED"),
    (
        "unknown",
        "[2023-01-01 00:00:00,000] [INFO] [launch.py:315:sigkill_handler] Killing subprocess "
        "45098\n[ERROR] [launch.py:321:sigkill_handler] ['python', 'x.py'] exits with return code = 1",
    ),
    ("unknown", "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 5527 closing signal SIGTERM"),
    ("cancelled|unknown", "torch.distributed.elastic.multiprocessing.api.SignalException: Process 3 got signal: 15"),
    ("unknown", "  traceback : Signal 15 (SIGTERM) received by PID 123"),
    ("unknown", "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1."),
    (
        "cancelled|unknown",
        "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2024-01-02T03:04:05 ***\nsrun: Job step "
        "aborted: Waiting up to 32 seconds for job step to finish.",
    ),
    ("unknown", "Aborted (core dumped)"),
    (
        "xid_hardware",
        "NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=python, Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS",
    ),
    (
        "xid_hardware",
        "NVRM: Xid (PCI:0000:01:00): 13, Graphics SM Warp Exception on (GPC 0, TPC 1): Illegal Instruction Encoding",
    ),
    ("xid_hardware", "NVRM: Xid (PCI:0000:3b:00): 48, pid=1, DBE (double bit error)"),
    ("xid_hardware", "NVRM: Xid (PCI:0000:3b:00): 74, NVLink: fatal error detected on link 2"),
    ("xid_hardware", "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"),
    ("xid_hardware", "Unable to determine the device handle for GPU0000:0D:00.0: Unknown Error"),
    ("xid_hardware", "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution"),
    ("unknown", "slurmstepd: error: *** STEP 1.0 ON n1 FAILED (non-zero exit code or other failure mode) ***"),
    ("oom_cuda|nccl_error", "NCCL WARN Failed to CUDA calloc async 10485760 bytes"),
    ("node_fail", "ORTE has lost communication with a remote daemon.\n\n  Remote daemon: [[53,0],14] on node b4124"),
    ("network", "ssh: connect to host n2 port 22: Connection timed out"),
    ("hang", "INFO: task python:4711 blocked for more than 120 seconds."),
    ("node_fail", "{1}[Hardware Error]: event severity: fatal"),
    ("nccl_error", "n1:1:2 [0] init.cc:1 NCCL WARN Mismatched NCCL version detected : rank 0 22605 rank 1 22703"),
    (
        "oom_cuda",
        'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":838',
    ),
    ("cuda_error", "Indexing.cu:1088: block: [0,0,0], thread: [1,0,0] Assertion `idx < size` failed."),
    ("cancelled|unknown", '^CTraceback (most recent call last):\n  File "a.py", line 1, in f\nKeyboardInterrupt'),
    ("segfault|unknown", "  traceback : Signal 7 (SIGBUS) received by PID 12"),
    ("nccl_error|unknown", "torch.distributed.DistNetworkError: failed to send"),
    ("config_error", "RuntimeError: CUDA error: invalid device ordinal"),
    ("python_exception|config_error", "TypeError: AdamW.__init__() got an unexpected keyword argument 'fused'"),
    ("xid_hardware", "NVRM: Xid (PCI:0000:3b:00): 92, pid=1, High single-bit ECC error rate"),
    ("oom_host", "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed."),
    ("unknown", "n1:7:9 [3] NCCL INFO comm 0x55 rank 3 nranks 8 cudaDev 3 busId 51000 - Abort COMPLETE"),
]

HEALTHY_FORMS: list[str] = [
    "NCCL version 2.18.1+cuda12.1\nn:1:1 [0] NCCL INFO Connected all rings",
    "n:1:1 [0] NCCL INFO [Proxy Service] ... \nn:1:1 [0] NCCL INFO comm 0x55 rank 0 nranks 2 - Destroy COMPLETE",
    "[rank0]:[W ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called "
    "before program exit, which can leak resources.",
    "[W Utils.hpp:135] Warning: Environment variable NCCL_ASYNC_ERROR_HANDLING is deprecated; use "
    "TORCH_NCCL_ASYNC_ERROR_HANDLING instead (function operator())",
    "0it [00:00, ?it/s]\nError rate: 0.0\n{'eval_loss': 2.1, 'errors': 0}",
    "n:1:1 [0] NCCL INFO NET/IB : No device found.\nn:1:1 [0] NCCL INFO NET/Socket : Using "
    "[0]eth0:1<0>\nn:1:1 [0] NCCL INFO Using network Socket",
    "WARNING: Detected NaN check disabled. max_oom_retries=3 oom_score_adj 0 "
    "segfault_handler=on\nmodel has 12 attention heads; hidden size divisible by 64: ok",
    "INFO validating: batch size must be divisible by 8: ok (64)",
    "time_limit: 01:00:00 walltime=3600 preemption: off node_fail policy: retry\nstep 1 done",
]


@pytest.mark.parametrize(("right", "text"), FORMS, ids=[f"{i}-{row[0]}" for i, row in enumerate(FORMS)])
def test_form_is_named_rightly(right: str, text: str) -> None:
    assert str(diagnose_text(text).outcome or NO_FAILURE) in right.split("|"), diagnose_text(text)


@pytest.mark.parametrize("text", HEALTHY_FORMS, ids=range(len(HEALTHY_FORMS)))
def test_healthy_form_is_no_failure(text: str) -> None:
    assert diagnose_text(text).outcome is None, diagnose_text(text)


def test_every_rule_is_used() -> None:
    ends = [text for _, _, text in (*MESSAGES, *issues_of_launch.ENDS, *issues_later.ENDS)]
    texts = [*ends, *(text for _, text in FORMS), *HEALTHY]
    used = {hit.source for text in texts for hit in scan(text)}
    assert {rule.name for rule in RULES} - used == set()
