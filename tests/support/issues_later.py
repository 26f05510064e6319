"""Further ends of public issues, written down after the rules for issues_of_launch.py and before they were tried.

15 of these 20 ends had their outcome then, four were called healthy, and one of the last eight healthy logs a failure.
`owner/name#number` on GitHub is where an end was met; the lines are rewritten.
"""

from __future__ import annotations

ENDS: list[tuple[str, str, str]] = [
    (
        "ayaka14732/llama-2-jax#20",
        "nccl_timeout",
        "Traceback (most recent call last):\n"
        '  File "train.py", line 89, in main\n'
        "    self.client.connect()\n"
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. "
        "Barrier_id: PjRT_Client_Connect. Timed out task names:\n/job:jax_worker/replica:0/task:1\n"
        "/job:jax_worker/replica:0/task:6\n",
    ),
    (
        "horovod/horovod#3618",
        "nccl_error|cuda_error",
        "    raise HorovodInternalError(e)\n"
        "horovod.common.exceptions.HorovodInternalError: ncclAllReduce failed: unhandled cuda error\n"
        "srun: error: n8: tasks 0-1: Exited with exit code 1\n",
    ),
    (
        "labdao/plex#18",
        "cuda_error|config_error",
        "docker: Error response from daemon: failed to create shim task: OCI runtime "
        "create failed: runc create failed: unable to start container process: error "
        "running hook #0: exit status 1, stderr: Auto-detected mode as 'legacy'\n"
        "nvidia-container-cli: initialization error: nvml error: driver/library version "
        "mismatch: unknown.\n",
    ),
    (
        "E3SM-Project/scream#2112",
        "config_error",
        "srun: error: Unable to create step for job 238: More processors requested than permitted\n",
    ),
    (
        "axolotl-ai-cloud/axolotl#1494",
        "python_exception|config_error",
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "_flat_param.py", line 770, in _validate_tensors_to_flatten\n'
        "[rank2]: ValueError: Must flatten tensors with uniform dtype but got "
        "torch.float32 and torch.bfloat16\n",
    ),
    (
        "JIA-Lab-research/VFIformer#13",
        "python_exception|config_error",
        '  File "serialization.py", line 920, in _legacy_load\n'
        "    magic_number = pickle_module.load(f, **pickle_load_args)\nEOFError: Ran out of input\n"
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) "
        "local_rank: 0 (pid: 199) of binary: /env/bin/python\n",
    ),
    (
        "kubernetes/kubernetes#91600",
        "disk_full",
        "Status:         Failed\nReason:         Evicted\n"
        "Message:        The node was low on resource: ephemeral-storage. Container "
        "worker was using 108488Ki, which exceeds its request of 0.\n",
    ),
    (
        "FederatedAI/KubeFATE#64",
        "oom_host",
        "4m11s  Warning  Evicted  pod/train-0  The node was low on resource: memory. "
        "Container train was using 5053216Ki, which exceeds its request of 0.\n"
        "4m11s  Normal  Killing  pod/train-0  Stopping container train\n",
    ),
    (
        "clovaai/bros#14",
        "cuda_error",
        "step 1 | loss 2.90 | 4.1 s\nstep 2 | loss 2.80 | 4.1 s\nstep 3 | loss 2.70 | 4.1 s\n"
        "step 4 | loss 2.60 | 4.1 s\nstep 5 | loss 2.50 | 4.1 s\n"
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling "
        "`cublasGemmEx( handle, opa, opb, m, n, k)`\n",
    ),
    (
        "LayneH/GreenMIM#6",
        "nan_loss",
        "Epoch: [3]  [ 120/1251]  lr: 0.000020  loss: 0.4711  time: 0.61\nLoss is nan, stopping training!\n",
    ),
    (
        "Unakar/Logic-RL#18",
        "unknown|oom_host|python_exception|segfault",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "\tclass_name: WorkerDict\n"
        "The actor is dead because its worker process has died. Worker exit type: "
        "SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection "
        "error code 2. End of file. There are some potential root causes. (1) The "
        "process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray "
        "stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV "
        "or other unexpected errors.\n",
    ),
    (
        "intel/torch-ccl#54",
        "nccl_error|python_exception",
        "2023:11:28-16:35:45:(359) |CCL_WARN| did not find MPI-launcher specific "
        "variables, switch to ATL/OFI\n"
        "2023:11:28-16:35:45:(359) |CCL_ERROR| base_thread.cpp:36 start: error while "
        "creating worker thread #0 pthread_create returns 22\n"
        "RuntimeError: oneCCL: exec.cpp:134 start_workers: EXCEPTION: failed to start worker # 0\n",
    ),
    (
        "triton-lang/triton#518",
        "config_error|python_exception",
        "Traceback (most recent call last):\n"
        '  File "cache.py", line 31, in put\n'
        "PermissionError: [Errno 13] Permission denied: '/tmp/triton/d645ef.lock'\n",
    ),
    (
        "PrimeIntellect-ai/prime-rl#2305",
        "import_error|python_exception",
        "[rank9]: ImportError: "
        "/home/me/.triton/cache/ab/__triton_launcher.cpython-312-x86_64-linux-gnu.so: "
        "cannot stat shared object: Stale file handle\n",
    ),
    (
        "naver/dust3r#198",
        "import_error",
        "Could not load library libcudnn_cnn_infer.so.8. Error: "
        "/usr/lib/libcudnn_cnn_infer.so.8: undefined symbol: "
        "_ZN5cudnn3ops18GetInternalStreamsEP12, version libcudnn_ops_infer.so.8\n"
        "Aborted (core dumped)\n",
    ),
    (
        "nvidia-cosmos/cosmos-transfer1#152",
        "import_error|cuda_error",
        "Unable to load any of {libcudnn_engines_precompiled.so.9.10.1, "
        "libcudnn_engines_precompiled.so.9}\nTraceback (most recent call last):\n"
        '  File "conv.py", line 720, in forward\n'
        "RuntimeError: CUDNN_BACKEND_TENSOR_DESCRIPTOR cudnnFinalize failed "
        "cudnn_status: CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED\n",
    ),
    (
        "ArjunaCluster/ArjunaUsers#92",
        "network|node_fail",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
    ),
    (
        "kohya-ss/musubi-tuner#733",
        "cancelled",
        "steps:   2%|2         | 77/5000 [57:02<60:46:54, 44.45s/it, avr_loss=0.0462]W1120 12:45:06 "
        "site-packages/torch/distributed/elastic/agent/server/api.py:719] Received 1 "
        "death signal, shutting down workers\nW1120 12:45:06 "
        "site-packages/torch/distributed/elastic/multiprocessing/api.py:900] Sending "
        "process 642 closing signal SIGHUP\nTraceback (most recent call last):\n"
        '  File "accelerate", line 8, in <module>\n'
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 642371 got signal: 1\n",
    ),
    (
        "OPM/LBPM#48",
        "nccl_error|network|unknown",
        "mtl_ofi.h:101: Error returned from fi_cq_readerr: Resource temporarily unavailable(-11).\n"
        "*** The Open MPI OFI MTL is aborting the MPI job (via exit(3)).\n"
        "Primary job  terminated normally, but 1 process returned\n"
        "a non-zero exit code. Per user-direction, the job has been aborted.\n",
    ),
    (
        "AI-Hypercomputer/gpu-recipes#2",
        "nccl_timeout",
        "E0220 coordination_service.cc:1] Stopping coordination service as cluster "
        "registration failed. This may be due to 1) some tasks crashed earlier before "
        "connecting, 2) some tasks were never scheduled.\n"
        "Original error: DEADLINE_EXCEEDED: Barrier timed out. Id: "
        "[Init]Wait_for_all_tasks_to_register::0.\n",
    ),
]

HEALTHY: dict[str, str] = {
    "NCCL retries its sockets": (
        "n1:1:1 [0] NCCL INFO NET/IB : No device found.\n"
        "n1:1:2 [0] NCCL INFO misc/socket.cc:477 NCCL INFO Call to connect returned "
        "Connection refused, retrying\nn1:1:2 [0] NCCL INFO Connected all rings\nstep 1 loss 3.2\n"
        "step 2 loss 3.1\n"
    ),
    "wandb offline": (
        "wandb: WARNING `resume` will be ignored since W&B syncing is set to `offline`. "
        "Starting a new run with run id x.\nwandb: Tracking run with wandb version 0.16.0\n"
        "wandb: W&B syncing is set to `offline` in this directory.\nstep 1 loss 3\n"
        "wandb: Network error (ConnectionError), entering retry loop.\nstep 2 loss 2\n"
        "wandb: You can sync this run to the cloud by running:\nwandb: wandb sync /x/offline-run-1\n"
        "wandb: Find logs at: ./wandb/offline-run-1/logs\n"
    ),
    "metrics named error": (
        "{'eval_error': 0.12, 'mean_squared_error': 0.4, 'failed_examples': 0, "
        "'word_error_rate': 0.08, 'epoch': 1.0}\n"
        "val: top1_error 23.1 top5_error 6.4 nan_batches 0 oom_retries 0 timeouts 0\n"
    ),
    "deprecations": (
        "FutureWarning: You are using `torch.load` with `weights_only=False` (the "
        "current default value), which uses the default pickle module implicitly. It is "
        "possible to construct malicious pickle data which will execute arbitrary code "
        "during unpickling.\nFutureWarning: `torch.cuda.amp.GradScaler(args...)` is deprecated.\n"
        "DeprecationWarning: pkg_resources is deprecated as an API\nstep 1 loss 3.1\n"
    ),
    "IPv6 names that do not resolve": (
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to "
        "[n1.example]:29500 (errno: 22 - Invalid argument).\n"
        "[W socket.cpp:697] [c10d] The IPv6 network addresses of (n1, 29500) cannot be "
        "retrieved (gai error: -2 - Name or service not known).\nstep 1 loss 3.1\nstep 2 loss 3.0\n"
    ),
    "loss scale found": (
        "[INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping "
        "step. Attempted loss scale: 4294967296, reducing to 2147483648\n"
        "[INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=2, lr=[1e-05]\n"
    ),
    "an optional import": (
        "WARNING: Failed to import flash_attn, falling back to SDPA\n"
        "Traceback (most recent call last):\n"
        '  File "attn.py", line 3, in <module>\n'
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory\n"
        "model built: 1.2 B parameters\nstep 1 loss 3.2\nstep 2 loss 3.1\n"
    ),
    "Slurm's TMPDIR and busy steps": (
        "slurmstepd: error: Unable to create TMPDIR [/scratch/150]: Permission denied\n"
        "slurmstepd: error: Setting TMPDIR to /tmp\n"
        "srun: Job 150 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
        "srun: Step created for StepId=150.1\nstep 1 loss 3.1\nstep 2 loss 3.0\nstep 3 loss 2.9\n"
        "step 4 loss 2.8\ndone\n"
    ),
    "a download again": (
        "'(ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read "
        "timed out. (read timeout=10)\"), '(Request ID: 1)')' thrown while requesting "
        "HEAD https://huggingface.co/gpt2/resolve/main/config.json\nRetrying in 1s [Retry 1/5].\n"
        "config loaded\nstep 1 loss 3.1\n"
    ),
    "forked tokenizers": (
        "huggingface/tokenizers: The current process just got forked, after parallelism "
        "has already been used. Disabling parallelism to avoid deadlocks...\n"
        "Token indices sequence length is longer than the specified maximum sequence "
        "length for this model (5120 > 4096). Running this sequence through the model "
        "will result in indexing errors\nstep 1 loss 3\n"
    ),
    "many workers": (
        "UserWarning: This DataLoader will create 16 worker processes in total. Our "
        "suggested max number of worker in current system is 8, which is smaller than "
        "what this DataLoader is going to create. Please be aware that excessive worker "
        "creation might get DataLoader running slow or even freeze, lower the worker "
        "number to avoid potential slowness/freeze if necessary.\nepoch 0 done in 31 s\n"
    ),
    "the store is gone after the end": (
        "step 1 | loss 2.90 | 4.1 s\nstep 2 | loss 2.80 | 4.1 s\nstep 3 | loss 2.70 | 4.1 s\n"
        "step 4 | loss 2.60 | 4.1 s\nstep 5 | loss 2.50 | 4.1 s\nTraining finished in 31 s\n"
        "[rank1]:[W1229 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=76, "
        "addr=[n1]:60950, remote=[n0]:29500): Connection reset by peer\n"
        "[rank1]:[W1229 ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0 Rank 1] Failed to "
        'check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down '
        "too early), with error: failed to recv, got 0 bytes\n"
    ),
    "ROCm's libraries": (
        "MIOpen(HIP): Warning [IsEnoughWorkspace] [GetSolutionsFallback WTI] Solver "
        "<GemmFwdRest>, workspace required: 1843200, provided ptr: 0 size: 0\n"
        "[W Context.cpp:296] Warning: Attempting to use hipBLASLt on an unsupported "
        "architecture! Overriding blas backend to hipblas (function operator())\n"
        "n1:1:1 [0] NCCL INFO RCCL version : 2.21.5-HEAD:8\nstep 1 loss 3.0\n"
    ),
    "Open MPI's warnings": (
        "WARNING: There was an error initializing an OpenFabrics device.\n\n  Local host:   n1\n"
        "  Local device: mlx5_0\n"
        "No OpenFabrics connection schemes reported that they were able to be used on a "
        "specific port. As such, the openib BTL will be disabled for this port.\niteration 1 loss 3.1\n"
        "iteration 2 loss 3.0\n"
    ),
    "autotuning": (
        "Runtime error during autotuning: \n"
        "No valid triton configs. OutOfResources: out of resource: shared memory, "
        "Required: 163840, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.. \n"
        "Ignoring this choice.\nAUTOTUNE mm(4096x4096, 4096x4096)\n  mm 0.4 ms 100.0%\n"
        "step 1 loss 3.0\nstep 2 loss 2.9\n"
    ),
    "oneCCL's warnings": (
        "2025:04:02-03:30:40:(41) |CCL_WARN| could not get local_idx/count from "
        "environment variables, trying to get them from ATL\n"
        "2025:04:02-03:30:40:(41) |CCL_WARN| value of CCL_ATL_TRANSPORT changed to be "
        "ofi (default:mpi)\nstep 1 loss 2\n"
    ),
    "a worker's exit at the end": (
        "step 1 | loss 2.90 | 4.1 s\nstep 2 | loss 2.80 | 4.1 s\nstep 3 | loss 2.70 | 4.1 s\n"
        "step 4 | loss 2.60 | 4.1 s\nstep 5 | loss 2.50 | 4.1 s\nTraining completed\n"
        "[rank2]:[W ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() "
        "was not called before program exit, which can leak resources.\n"
        "Exception in thread Thread-3 (_pin_memory_loop):\nTraceback (most recent call last):\n"
        '  File "threading.py", line 1016\n'
        "ConnectionResetError: [Errno 104] Connection reset by peer\n"
    ),
    "cuDNN's fallback": (
        "UserWarning: Plan failed with a cudnnException: "
        "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: cudnnFinalizeDescriptor Failed "
        "cudnn_status: CUDNN_STATUS_NOT_SUPPORTED (Triggered internally at Conv_v8.cpp:919.)\n"
        "step 1 loss 3.0\nstep 2 loss 2.9\n"
    ),
    "batch size found": (
        "Batch size 64 failed with CUDA out of memory. Tried to allocate 2.00 GiB. "
        "Trying batch size 32\nstep 1 loss 3.0\nstep 2 loss 2.9\nstep 3 loss 2.8\nstep 4 loss 2.7\n"
    ),
    "nvidia-smi in the prologue": (
        "No running processes found\n|   0  NVIDIA H100 80GB HBM3   On  | 00000000:1B:00.0 Off |  0 |\n"
        "Volatile Uncorr. ECC 0   Xid errors: none\niteration 1 loss 3.0\n"
    ),
    "Megatron's start": (
        "WARNING: could not find the metadata file ckpt/latest_checkpointed_iteration.txt\n"
        "    will not load any checkpoints and will start from random\n"
        " iteration 1/ 100 | lm loss: 1.1E+01 | number of skipped iterations: 0 | number "
        "of nan iterations: 0 |\n"
    ),
    "torchrun restarts nothing": (
        "W1120 torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment "
        "variable for each process to be 1\nI1120 elastic: max_restarts=3 exit_barrier timeout=300\n"
        "{'train_loss': 2.1, 'error': None, 'status': 'ok'}\n"
    ),
    "checkpoint kept again": (
        "Failed to save checkpoint (attempt 1/3): [Errno 116] Stale file handle, retrying\n"
        "saved checkpoint at step 10\nstep 11 loss 2.0\nstep 12 loss 1.9\n"
    ),
}
