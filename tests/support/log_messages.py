"""Messages collected from public sources, collected before the rules were tuned.

Each row: the correct outcomes, the source of such a message, and the message (facts, few lines).
"""

MESSAGES: list[tuple[str, str, str]] = [
    # --- GPU memory
    (
        "oom_cuda",
        "pytorch c10/cuda/CUDACachingAllocator.cpp, 2.3 and later",
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity "
        "of 79.15 GiB of which 1.21 GiB is free. Including non-PyTorch memory, this process has 77.93 GiB memory in "
        "use. Of the allocated memory 71.02 GiB is allocated by PyTorch, and 4.33 GiB is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
    ),
    ("oom_cuda", "pytorch#16417, 1.x", "RuntimeError: CUDA error: out of memory"),
    (
        "oom_cuda|nccl_error",
        "NVIDIA/nccl#962: no memory left for NCCL's buffers",
        "node1:11:99 [1] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.",
    ),
    (
        "oom_cuda|cuda_error",
        "discuss.pytorch.org: cublasCreate without memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ),
    (
        "oom_cuda",
        "tensorflow/jax XLA allocator",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
        "17179869184 bytes.",
    ),
    ("oom_cuda", "pytorch on ROCm", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 512.00 MiB."),
    # --- host memory
    (
        "oom_host",
        "Slurm 20.02 slurmstepd",
        "/var/spool/slurmd/job00191/slurm_script: line 28:  8156 Killed                  python3 main.py\n"
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup. Some of your processes may have "
        "been killed by the cgroup out-of-memory handler.",
    ),
    (
        "oom_host",
        "reportportal/kubernetes#203, kernel 5.4",
        "[ 7063.247407] Memory cgroup out of memory: Killed process 63214 (python) total-vm:3149468kB, "
        "anon-rss:164992kB, file-rss:52176kB, shmem-rss:92kB, UID:0 pgtables:1372kB oom_score_adj:986",
    ),
    ("oom_host", "slurm 17.11", "slurmstepd: error: Exceeded step memory limit at some point."),
    (
        "oom_host",
        "slurm jobacct_gather",
        "slurmstepd: error: Step 4711.0 exceeded memory limit (33689600 > 33554432), being killed",
    ),
    (
        "oom_host",
        "pytorch c10/core/CPUAllocator",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: can't allocate memory: you tried "
        "to allocate 51380224000 bytes. Error code 12 (Cannot allocate memory)",
    ),
    (
        "oom_host",
        "torchelastic summary",
        "  exitcode  : -9 (pid: 2912)\n  traceback : Signal 9 (SIGKILL) received by PID 2912\n",
    ),
    ("oom_host", "python", 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nMemoryError'),
    (
        "oom_host",
        "libstdc++",
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
    ),
    # --- CUDA
    (
        "cuda_error",
        "pytorch aten Indexing.cu",
        "../aten/src/ATen/native/cuda/Indexing.cu:1146: indexSelectLargeIndex: block: [88,0,0], thread: [32,0,0] "
        "Assertion `srcIndex < srcSelectDimSize` failed.\n"
        "RuntimeError: CUDA error: device-side assert triggered",
    ),
    (
        "cuda_error",
        "pytorch cublas",
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb)`",
    ),
    (
        "cuda_error",
        "pytorch: wheel without this GPU's kernels",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    (
        "cuda_error",
        "nvidia-resiliency-ext#18",
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    ),
    ("cuda_error", "cudnn", "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    (
        "cuda_error",
        "torch/cuda/__init__.py",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
        "installed a driver",
    ),
    ("cuda_error", "triton driver", "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered"),
    # --- hardware
    (
        "xid_hardware",
        "open-gpu-kernel-modules#1010",
        "kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=6755, name=python, GPU has fallen off the bus.",
    ),
    (
        "xid_hardware",
        "leptonai/gpud#1174",
        "NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error",
    ),
    (
        "xid_hardware",
        "leptonai/gpud#1174, NVLink",
        "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)",
    ),
    (
        "xid_hardware",
        "nvidia-smi",
        "Unable to determine the device handle for GPU 0000:4E:00.0: GPU is lost.  Reboot the system to recover "
        "this GPU",
    ),
    # --- NCCL and c10d
    (
        "nccl_error",
        "NVIDIA/nccl#111, NCCL 2.0",
        "node7 [0] include/socket.h:185 WARN Call to connect failed : Connection refused\n"
        "NCCL failure prog.cu:110 'unhandled system error'",
    ),
    (
        "nccl_error",
        "sglang#3820",
        "node5:240:240 [6] misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 10.0.0.4<56849> returned 113(No "
        "route to host) errno 115(Operation now in progress)",
    ),
    (
        "nccl_error",
        "NVIDIA/nccl#1905",
        "h100-28:238:1219 [0] transport/net_ib.cc:180 NCCL WARN NET/IB : mlx5_ib0:1 async fatal event on QP "
        "(0x7f69f01519a8): local access violation work queue error",
    ),
    (
        "nccl_error|unknown",
        "pytorch: a peer died first",
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, "
        "remote process exited or there was a network error, NCCL version 2.20.5\nncclRemoteError: A call failed "
        "possibly due to a network error or a remote process exiting prematurely.",
    ),
    (
        "nccl_error",
        "pytorch#79847",
        "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:891, internal error, NCC\n"
        "L version 21.0.3\nncclInternalError: Internal check failed. This is either a bug in NCCL or due to memory "
        "corruption",
    ),
    (
        "config_error|nccl_error",
        "verl#161: two ranks on one GPU",
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, invalid "
        "usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.20.5\nncclInvalidUsage: This usually reflects "
        "invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA "
        "device 10",
    ),
    (
        "nccl_timeout",
        "pytorch ProcessGroupNCCL.cpp 2.1",
        "[E ProcessGroupNCCL.cpp:474] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1173, "
        "OpType=_REDUCE_SCATTER_BASE, NumelIn=8, NumelOut=1, Timeout(ms)=600000) ran for 600513 milliseconds before "
        "timing out.",
    ),
    (
        "nccl_timeout",
        "OpenRLHF#1040",
        "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/3 clients joined.",
    ),
    (
        "nccl_timeout",
        "torchtune#2676, gloo",
        "[rank2]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
        "1800000ms for recv operation to complete",
    ),
    (
        "nccl_timeout|nccl_error",
        "vllm#19670",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to "
        "(172.17.0.9, 46229).",
    ),
    (
        "nccl_timeout",
        "submitit#1613",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
        "store_based_barrier_key:1 (world_size=8, worker_count=16, timeout=0:30:00)",
    ),
    # --- ports
    (
        "port_in_use",
        "mochi-xdit#22",
        "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, "
        "code: -98, name: EADDRINUSE, message: address already in use",
    ),
    ("port_in_use", "python socket", "OSError: [Errno 98] Address already in use"),
    # --- storage
    ("disk_full", "mmdetection#12069", "OSError: [Errno 122] Disk quota exceeded"),
    (
        "disk_full",
        "pytorch serialization",
        "RuntimeError: [enforce fail at inline_container.cc:337] . unexpected pos 1920 vs 1814",
    ),
    ("disk_full", "coreutils", "cp: error writing '/scratch/ckpt/model.pt': No space left on device"),
    (
        "disk_full|oom_host|segfault",
        "mmsegmentation#1356: /dev/shm too small",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
        "RuntimeError: DataLoader worker (pid 7579) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
    ),
    (
        "disk_full|nccl_error",
        "NCCL shm transport",
        "node:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-9GkWbP to 9637892 bytes",
    ),
    # --- Slurm
    (
        "time_limit",
        "Slurm slurmstepd",
        "slurmstepd: error: *** JOB 51 ON gpu-3 CANCELLED AT 2026-01-07T11:02:09 DUE TO TIME LIMIT ***",
    ),
    (
        "preempted",
        "submitit#1613",
        "slurmstepd: error: *** STEP 37361369.0 ON learnfair5146 CANCELLED AT 2021-03-15T17:50:23 ***\n"
        "submitit WARNING (2021-03-15 17:50:23,701) - Bypassing signal 15\n"
        "slurmstepd: error: *** JOB 37361369 ON learnfair5146 CANCELLED AT 2021-03-15T18:00:46 DUE TO PREEMPTION ***\n"
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0",
    ),
    ("node_fail", "GoogleCloudPlatform/cluster-toolkit#1600", "srun: error: Node failure on hpcsmall-debug-ghpc-0"),
    (
        "node_fail",
        "aws-parallelcluster#4179",
        "srun: error: Task launch for StepId=20.0 failed on node p4d-33: Socket timed out on send/recv operation\n"
        "srun: error: Application launch failed: Socket timed out on send/recv operation",
    ),
    (
        "config_error",
        "elasticluster#553",
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
    ),
    (
        "config_error",
        "DragonHPC/dragon#61",
        "srun: error: Unable to create step for job 17627941: Requested node configuration is not available",
    ),
    ("cancelled|unknown", "scancel", "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2024-01-02T03:04:05 ***"),
    # --- configuration
    (
        "config_error",
        "DeepSpeed#6914",
        "[rank0]: AssertionError: Check batch related parameters. train_batch_size is not equal to "
        "micro_batch_per_gpu * "
        "gradient_acc_step * world_size 8 != 2 * 1 * 1",
    ),
    ("config_error", "DeepSpeed#3634", "AssertionError: num_heads (52) must be divisible by mp_size (8)"),
    (
        "config_error",
        "vllm#52435, pydantic",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, Total "
        "number of "
        "attention heads (64) must be divisible by tensor parallel size (3).",
    ),
    (
        "config_error",
        "argparse",
        "usage: train.py [-h]\ntrain.py: error: the following arguments are required: --model",
    ),
    ("config_error", "hydra", "Could not override 'optim.lrr'.\nKey 'lrr' is not in struct"),
    (
        "config_error",
        "Megatron-LM arguments.py",
        "AssertionError: world size (8) is not divisible by tensor model parallel size (16)",
    ),
    ("config_error", "bash", "/var/spool/slurmd/job7/slurm_script: line 9: torchrunn: command not found"),
    # --- imports
    ("import_error", "python", "ModuleNotFoundError: No module named 'flash_attn'"),
    (
        "import_error",
        "glibc",
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by fused.so)",
    ),
    (
        "import_error",
        "ld.so",
        "python: error while loading shared libraries: libpython3.11.so.1.0: cannot open shared object file: No "
        "such file",
    ),
    (
        "import_error",
        "transformers import_utils",
        "RuntimeError: Failed to import transformers.models.llama because of the following error",
    ),
    # --- loss
    (
        "nan_loss",
        "DeepSpeedExamples#418",
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
    ),
    ("nan_loss", "facebookresearch/mae", "Loss is nan, stopping training"),
    ("nan_loss", "transformers Trainer", "{'loss': nan, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.31}"),
    (
        "nan_loss",
        "fairseq fp16_optimizer",
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. Try lowering the "
        "learning rate, using gradient clipping or increasing the batch size.",
    ),
    # --- crashes
    (
        "segfault",
        "pytorch#61839",
        "subprocess.CalledProcessError: Command '['python3']' died with <Signals.SIGSEGV: 11>.",
    ),
    ("segfault", "faulthandler", "Fatal Python error: Segmentation fault\n\nThread 0x00007f (most recent call first):"),
    ("segfault", "Open MPI", "[n1:3] *** Process received signal ***\n[n1:3] Signal: Segmentation fault (11)"),
    ("segfault", "kernel", "[ 12.3] python[4711]: segfault at 0 ip 00007f sp 00007f error 4 in libtorch_cuda.so[7f+1]"),
    # --- programs
    (
        "python_exception",
        "python",
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n'
        "  File \"train.py\", line 5, in main\n    x = d['a']\nKeyError: 'a'",
    ),
    (
        "python_exception|config_error",
        "pytorch",
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 9, in f\n[rank1]:     return a @ b\n'
        "[rank1]: RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x16 and 32x8)",
    ),
    # --- several, where the earliest cause must be found
    (
        "oom_cuda",
        "composed: one rank out of memory, its peers in a collective",
        "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.\n"
        "[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=9) ran for 600000 milliseconds before timing out.\n"
        "slurmstepd: error: *** STEP 1.0 ON n CANCELLED AT 2024-01-02T03:04:05 DUE TO TIME LIMIT ***",
    ),
    (
        "python_exception",
        "composed: an exception, then the elastic agent's report",
        'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    f()\n'
        "ValueError: too many values to unpack (expected 2)\n"
        "E0101 00:00:00.0 1 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0\n"
        'Traceback (most recent call last):\n  File "torchrun", line 8, in <module>\n    sys.exit(main())\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "  traceback : Signal 15 (SIGTERM) received by PID 12",
    ),
    (
        "xid_hardware",
        "composed: a dead GPU and the ranks' errors",
        "RuntimeError: CUDA error: unspecified launch failure\n"
        "kernel: NVRM: Xid (PCI:0000:9b:00): 48, pid=1, name=python, An uncorrectable double bit error (DBE) has "
        "been detected",
    ),
    (
        "unknown",
        "torchelastic: only that the worker was aborted",
        "  exitcode  : -6 (pid: 13)\n  traceback : Signal 6 (SIGABRT) received by PID 13\n",
    ),
]


HEALTHY: list[str] = [
    "",
    "step 1 loss 10.9\nstep 2 loss 10.1\nTraining finished, 0 errors\n",
    "I0101 ProcessGroupNCCL.cpp:934] ProcessGroupNCCL initialization options: Timeout set to 600000ms\n"
    "NCCL version 2.21.5+cuda12.4\nn1:1:1 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so.\n"
    "n1:1:1 [0] NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file: No such "
    "file or directory : when loading libnccl-net.so\nn1:1:1 [0] NCCL INFO NCCL_ASYNC_ERROR_HANDLING set by "
    "environment to 1",
    "[W socket.cpp:697] [c10d] The client socket has failed to connect to [node]:29500 (errno: 97 - Address family not "
    "supported by protocol).\niteration 1/100 | lm loss: 1.0\n",
    "/x/torch/functional.py:504: UserWarning: torch.meshgrid: in an upcoming release, it will be required to pass the "
    "indexing argument.\n  return _VF.meshgrid(tensors, **kwargs)\nDeprecationWarning: error is deprecated\n",
    'WARNING:train:apex is not there, using torch\'s own\nTraceback (most recent call last):\n  File "a.py", line '
    "2, in f\n"
    "    import apex\nModuleNotFoundError: No module named 'apex'\nINFO:train:model built\nINFO:train:starting\n",
    "trying batch size 64\nRuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\nretrying with batch size 32\n"
    + "".join(f"iteration {i}/100 | lm loss: 3.{i}\n" for i in range(20)),
    " check_for_nan_in_loss_and_grad .................. True\n nan_policy ...... error\n  "
    "exit_on_missing_checkpoint .. False\n"
    "  error_injection_rate ............................ 0\n model nanogpt banana loss_nan_check: False\n",
    " iteration 1/ 10 | lm loss: 1.0E+01 | loss scale: 4096.0 | grad norm: nan | number of nan iterations: 0 |\n"
    + "".join(
        f" iteration {i}/ 10 | lm loss: 9.0E+00 | grad norm: 1.{i} | number of nan iterations: 0 |\n"
        for i in range(2, 9)
    ),
    "[INFO] [loss_scaler.py:181:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2048\n"
    "step=2 loss=2.1\n",
    "WARNING:urllib3.connectionpool:Retrying (Retry(total=4)) after connection broken by "
    "'NewConnectionError(\"Failed to "
    "establish a new connection: [Errno 111] Connection refused\")'\nDownloaded.\n",
    "2024-01-01 E tensorflow/compiler/xla/stream_executor/cuda/cuda_dnn.cc:9342] Unable to register cuDNN factory: "
    "Attempting to register factory for plugin cuDNN when one has already been registered\n"
    "W tensorflow: Could not load dynamic library 'libnvinfer.so.7'; dlerror: libnvinfer.so.7: cannot open shared "
    "object file\n",
    "step 9 loss 2.0\nTraining completed\n[rank1]:[W TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3): "
    "Connection reset by peer\n",
    "srun: Job 9479148 step creation temporarily disabled, retrying (Requested nodes are busy)\nsrun: Step created "
    "for job\n"
    "test_error_handling PASSED\nerror rate 0.01, failed requests: 0\n",
    "Exception ignored in: <function _ConnectionBase.__del__ at 0x7f>\nTraceback (most recent call last):\n"
    '  File "c.py", line 1, in __del__\nOSError: [Errno 9] Bad file descriptor\n',
]
