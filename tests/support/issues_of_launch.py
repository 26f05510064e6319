"""How containers, Slurm, MPI, ssh, AMD's GPUs and downloads end, as public issues report it.

`owner/name#number` on GitHub is where it was met; the lines are rewritten, with names and numbers of our own. The
outcomes were written down before they were tried: 30 of these 40 ends had theirs, and three were called healthy. The
rules that followed are by mechanism; issues_later.py holds ends that were written down after them.
"""

from __future__ import annotations

ENDS: list[tuple[str, str, str]] = [
    (
        "NVIDIA/pyxis#61",
        "config_error",
        "pyxis: importing docker image ...\n"
        "slurmstepd: error: pyxis: container start failed with error code: 1\n"
        "slurmstepd: error: pyxis: printing contents of log file ...\n"
        "slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/bash: "
        "No such file or directory\nslurmstepd: error: pyxis: couldn't start container\n"
        "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1\n"
        "slurmstepd: error: Failed to invoke spank plugin stack\n"
        "srun: error: n2: task 1: Exited with exit code 1\n",
    ),
    (
        "NVIDIA/pyxis#12",
        "config_error|node_fail",
        "slurmstepd: pyxis: importing docker image ...\n"
        "slurmstepd: error: pyxis: child 12 failed with error code: 1\n"
        "slurmstepd: error: pyxis: failed to import docker image\n"
        "slurmstepd: error: pyxis:     mkdir: cannot create directory '/run/enroot': "
        "Permission denied\nslurmstepd: error: spank: required plugin spank_pyxis.so: "
        "task_init_privileged() failed with rc=-1\n"
        "slurmstepd: error: write to unblock task 0 failed: Broken pipe\n"
        "srun: error: n1: task 0: Exited with exit code 1\n",
    ),
    (
        "NVIDIA/pyxis#127",
        "config_error",
        "pyxis: importing docker image: torch.sqsh\n"
        "slurmstepd: error: pyxis: child 100 failed with error code: 1\n"
        "slurmstepd: error: pyxis: failed to import docker image\n"
        "slurmstepd: error: pyxis: printing enroot log file:\n"
        "slurmstepd: error: pyxis:     [INFO] Querying registry for permission grant\n"
        "slurmstepd: error: pyxis: couldn't start container\n"
        "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1\n"
        "srun: error: n0: task 0: Exited with exit code 1\n",
    ),
    (
        "ROCm/legacy-rocm-build#4021",
        "xid_hardware|cuda_error",  # the thread blames the driver: a node is not accused at once
        "{'loss': 0.45, 'grad_norm': 1.04, 'learning_rate': 5.2e-06, 'epoch': 1.22}\n"
        " 41%|####      | 366/903 [5:15:39<6:53:09, 46.16s/it]HW Exception by GPU node-9 "
        "(Agent handle: 0x63) reason :GPU Hang\n"
        "HW Exception by GPU node-9 (Agent handle: 0x64) reason :GPU Hang\nAborted (core dumped)\n",
    ),
    (
        "ROCm/legacy-rocm-build#1535",
        "cuda_error",
        "step 1 | loss 2.90 | 4.1 s\nstep 2 | loss 2.80 | 4.1 s\nstep 3 | loss 2.70 | 4.1 s\n"
        "step 4 | loss 2.60 | 4.1 s\nstep 5 | loss 2.50 | 4.1 s\n"
        "Memory access fault by GPU node-2 (Agent handle: 0x55) on address "
        "0x7fc133800000. Reason: Page not present or supervisor privilege.\nAborted (core dumped)\n",
    ),
    (
        "meta-pytorch/torchtune#2572",
        "python_exception|cuda_error|config_error",  # a kernel's shared memory
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "full_finetune.py", line 821, in train\n'
        "[rank0]:     loss.backward()\n"
        "[rank0]: torch._inductor.exc.InductorError: OutOfResources: out of resource: "
        "shared memory, Required: 147456, Hardware limit: 101376. Reducing block sizes "
        "or `num_stages` may help.\n",
    ),
    (
        "pytorch/pytorch#103417",
        "import_error|python_exception|config_error",
        "/usr/bin/ld: cannot find -lcuda: No such file or directory\n"
        "collect2: error: ld returned 1 exit status\nTraceback (most recent call last):\n"
        '  File "train.py", line 9, in <module>\n'
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\n"
        "CalledProcessError: Command '['/usr/bin/gcc', '/tmp/a/main.c', '-O3', "
        "'-shared', '-lcuda']' returned non-zero exit status 1.\n\n"
        "Set torch._dynamo.config.verbose=True for more information\n",
    ),
    (
        "Dao-AILab/flash-attention#762",
        "config_error|cuda_error|python_exception",
        "Traceback (most recent call last):\n"
        '  File "interface.py", line 51, in _flash_attn_forward\n'
        "    out, q = flash_attn_cuda.fwd(\n"
        "RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED\n"
        "Root Cause (first observed failure):\n  rank      : 3 (local_rank: 3)\n"
        "  exitcode  : 1 (pid: 812)\n  error_file: <N/A>\n",
    ),
    (
        "pytorch/pytorch#49849",
        "python_exception|config_error",
        "Traceback (most recent call last):\n"
        '  File "dataloader.py", line 990, in _try_get_data\n'
        "RuntimeError: Too many open files. Communication with the workers is no longer "
        "possible. Please increase the limit using `ulimit -n` in the shell or change "
        "the sharing strategy by calling `torch.multiprocessing.set_sharing_strategy('file_system')`\n",
    ),
    (
        "facebookresearch/detectron2#3900",
        "python_exception|oom_host|config_error",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 20 of 64: Resource "
        "temporarily unavailable\nOpenBLAS blas_thread_init: RLIMIT_NPROC 4096 current, 4096 max\n"
        "Traceback (most recent call last):\n"
        '  File "launch.py", line 4, in start\n'
        "    self._popen = self._Popen(self)\n"
        "BlockingIOError: [Errno 11] Resource temporarily unavailable\n",
    ),
    (
        "Comfy-Org/ComfyUI#3225",
        "python_exception|config_error",
        "Traceback (most recent call last):\n"
        '  File "load.py", line 15, in load\n'
        '    with safe_open(path, framework="pt", device="cpu") as f:\n'
        "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer\n",
    ),
    (
        "open-mmlab/mmdetection#4835",
        "python_exception|config_error",  # a torn file is read; no disk is full
        "resuming from epoch_35.pth\nTraceback (most recent call last):\n"
        '  File "serialization.py", line 242, in __init__\n'
        "RuntimeError: [enforce fail at inline_container.cc:144] . PytorchStreamReader "
        "failed reading zip archive: failed finding central directory\n",
    ),
    (
        "pytorch/pytorch#43259",
        "python_exception",
        "step 1 | loss 2.90 | 4.1 s\nstep 2 | loss 2.80 | 4.1 s\nstep 3 | loss 2.70 | 4.1 s\n"
        "step 4 | loss 2.60 | 4.1 s\nstep 5 | loss 2.50 | 4.1 s\nTraceback (most recent call last):\n"
        '  File "train.py", line 80, in step\n'
        "RuntimeError: Expected to have finished reduction in the prior iteration before "
        "starting a new one. This error indicates that your module has parameters that "
        "were not used in producing loss.\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED\n"
        "Root Cause (first observed failure):\n  rank      : 3 (local_rank: 3)\n"
        "  exitcode  : 1 (pid: 812)\n  error_file: <N/A>\n",
    ),
    (
        "ArjunaCluster/ArjunaUsers#100",
        "network|node_fail",
        "srun: error: Unable to confirm allocation for job 605: Unable to contact slurm "
        "controller (connect failure)\n"
        "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 605\n",
    ),
    (
        "facebookincubator/submitit#1659",
        "network|node_fail",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
    ),
    (
        "NVIDIA/nccl-tests#264",
        "cuda_error",
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor)\n# Using devices\n"
        "n1: Test CUDA failure common.cu:941 'system not yet initialized'\n"
        " .. n1 pid 54: Test failure common.cu:891\n",
    ),
    (
        "NVIDIA/nccl#976",
        "cuda_error|nccl_error",
        "NCCL version 2.18.5+cuda12.2\n"
        "n1:8:9 [0] transport/nvls.cc:165 NCCL WARN Cuda failure 'invalid argument'\n"
        "n1:8:9 [0] NCCL INFO transport/nvls.cc:324 -> 1\nn1:8:9 [0] NCCL INFO init.cc:1093 -> 1\n"
        "n1: Test NCCL failure common.cu:954 'unhandled cuda error (run with "
        "NCCL_DEBUG=INFO for details) / '\n",
    ),
    (
        "NVIDIA/nccl-tests#206",
        "nccl_error",  # the limit of locked memory; the host's memory is not short
        "n1:4:9 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0\n\n"
        "n1:4:9 [1] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with "
        "error Cannot allocate memory\nn1:4:9 [1] NCCL INFO transport/net_ib.cc:1341 -> 2\n"
        "n1: Test NCCL failure common.cu:1005 'unhandled system error (run with "
        "NCCL_DEBUG=INFO for details) / '\n",
    ),
    (
        "OpenRLHF/OpenRLHF#911",
        "oom_host",  # Ray's OutOfMemoryError is about the host
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 2523, in get\n'
        "    raise value\n"
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
        "Memory on the node (IP: 10.0.0.7, ID: fc2b) where the task (actor ID: f9cc, "
        "name=Actor.__init__, pid=43, memory used=2.22GB) was running was 239.49GB / "
        "250.00GB (0.957), which exceeds the memory usage threshold of 0.95.\n",
    ),
    (
        "huggingface/transformers#26377",
        "python_exception",
        "[WARNING|logging.py:305] 2023-09-25 11:56:23,032 >> `use_cache=True` is "
        "incompatible with gradient checkpointing. Setting `use_cache=False`...\n"
        "UserWarning: None of the inputs have requires_grad=True. Gradients will be None\n"
        "Traceback (most recent call last):\n"
        '  File "run_clm.py", line 642, in <module>\n'
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn\n",
    ),
    (
        "OpenEuroLLM/oellm-eval#58",
        "config_error|python_exception",
        "Traceback (most recent call last):\n"
        '  File "tokenization_utils_base.py", line 1709, in from_pretrained\n'
        "    raise OSError(\n"
        "OSError: Can't load tokenizer for 'EleutherAI/pythia-160m'. If you were trying "
        "to load it from 'https://huggingface.co/models', make sure you don't have a "
        "local directory with the same name.\n",
    ),
    (
        "haoheliu/AudioLDM2#46",
        "config_error|network|python_exception",
        "Traceback (most recent call last):\n"
        '  File "file_download.py", line 1485, in _raise_on_head_call_error\n'
        "huggingface_hub.utils._errors.LocalEntryNotFoundError: An error happened while "
        "trying to locate the file on the Hub and we cannot find the requested files in "
        "the local cache. Please check your connection and try again.\n",
    ),
    (
        "huggingface/datasets#7506",
        "network|python_exception",
        "step 1 | loss 2.90 | 4.1 s\nstep 2 | loss 2.80 | 4.1 s\nstep 3 | loss 2.70 | 4.1 s\n"
        "step 4 | loss 2.60 | 4.1 s\nstep 5 | loss 2.50 | 4.1 s\n"
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "trainer.py", line 2200, in _inner_training_loop\n'
        "[rank2]: huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many "
        "Requests for url: https://huggingface.co/datasets/x/resolve/main/000.parquet\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED\n"
        "Root Cause (first observed failure):\n  rank      : 3 (local_rank: 3)\n"
        "  exitcode  : 1 (pid: 812)\n  error_file: <N/A>\n",
    ),
    (
        "xmed-lab/URN#2",
        "python_exception|oom_host|unknown",
        "Traceback (most recent call last):\n"
        '  File "dataloader.py", line 1025, in _try_get_data\n'
        "    raise RuntimeError(\nRuntimeError: DataLoader worker (pid(s) 58594) exited unexpectedly\n",
    ),
    (
        "ArjunaCluster/ArjunaUsers#172",
        "config_error",
        "--------------------------------------------------------------------------\n"
        "PMI2_Init failed to intialize.  Return code: 1\n"
        "--------------------------------------------------------------------------\n"
        'The application appears to have been direct launched using "srun",\n'
        "but OMPI was not built with SLURM's PMI support and therefore cannot\n"
        "execute. There are several options for building PMI support under\n"
        "SLURM, depending upon the SLURM version you are using:\n*** An error occurred in MPI_Init\n"
        "*** on a NULL communicator\nsrun: error: n1: task 0: Exited with exit code 1\n",
    ),
    (
        "Janrupf/stable-diffusion-webui-nix#9",
        "cuda_error",
        "UserWarning: \n"
        "NVIDIA X with CUDA capability sm_120 is not compatible with the current PyTorch "
        "installation.\nThe current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 "
        "sm_80 sm_86 sm_90.\n"
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so "
        "the stacktrace below might be incorrect.\n",
    ),
    (
        "NVIDIA-NeMo/Speech#14838",
        "config_error",
        '1:   File "strategy.py", line 154, in setup_environment\n'
        "1:     self.setup_distributed()\n1: RuntimeError: decoder world_size (4) is not divisible by "
        "expert_tensor_model_pipeline_parallel size (8)\n"
        "srun: error: n1: task 1: Exited with exit code 1\n",
    ),
    (
        "pytorch/pytorch#107021",
        "nccl_timeout|network|nccl_error",
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n"
        "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while "
        "trying to connect to (192.0.2.1, 1234).\n"
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The "
        "connection to the C10d store has failed. See inner exception for details.\n",
    ),
    (
        "NVIDIA/nccl#290",
        "disk_full",
        "g2:21:25 [2] NCCL INFO Ring 00 : 2[3d000] -> 3[3e000] via direct shared memory\n\n"
        "g2:21:25 [1] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No "
        "space left on device\ng2:21:25 [1] NCCL INFO include/shm.h:41 -> 2\n"
        "g2:21:25 [1] include/shm.h:48 NCCL WARN Error while creating shared memory "
        "segment nccl-shm-recv-14-1-2-3 (size 9637888)\n"
        "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:784, unhandled system error, "
        "NCCL version 2.7.8\n",
    ),
    (
        "deepspeedai/DeepSpeed#5709",
        "config_error|network",
        "[INFO] [multinode_runner.py:80:get_cmd] Running on the following workers: n1,n2\n"
        "n2: Permission denied, please try again.\nn2: me@n2: Permission denied (publickey,password).\n"
        "pdsh@n1: n2: ssh exited with exit code 255\n",
    ),
    (
        "whittle-org/whittle#153",
        "config_error|import_error",
        "Traceback (most recent call last):\n"
        '  File "builder.py", line 51, in installed_cuda_version\n'
        "deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not "
        "exist, unable to compile CUDA op(s)\n",
    ),
    (
        "OptimalScale/LMFlow#88",
        "config_error|python_exception",
        "Traceback (most recent call last):\n"
        '  File "training_args.py", line 1098, in __post_init__\n'
        "    raise ValueError(\n"
        "ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using "
        "Ampere GPU with cuda>=11.0\n"
        "[ERROR] [launch.py:324:sigkill_handler] ['python', '-u', 'finetune.py'] exits "
        "with return code = 1\n",
    ),
    (
        "pytorch/pytorch#100691",
        "cuda_error",
        "Traceback (most recent call last):\n"
        '  File "check.py", line 17, in <module>\n'
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n",
    ),
    (
        "aws/aws-ofi-nccl#161",
        "nccl_error",
        "step 1 | loss 2.90 | 4.1 s\nstep 2 | loss 2.80 | 4.1 s\nstep 3 | loss 2.70 | 4.1 s\n"
        "step 4 | loss 2.60 | 4.1 s\nstep 5 | loss 2.50 | 4.1 s\n"
        "algo-1:46:46 [0] ofi_process_cq:1033 NCCL WARN NET/OFI Request 0x7f completed "
        "with error. RC: 21. Error: unknown error. Completed length: 0, Request: { "
        "buffer_index: 255, dev: 2, size: 0, state: CREATED }\n"
        "algo-1:46:46 [0] NCCL INFO include/net.h:32 -> 2\n"
        "algo-1:46:46 [0] NCCL INFO proxy.cc:494 -> 2 [Proxy Thread]\n",
    ),
    (
        "sgl-project/sglang#5520",
        "nccl_error|python_exception|config_mismatch",
        "Traceback (most recent call last):\n"
        '  File "distributed_c10d.py", line 2421, in broadcast\n'
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 9 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=3, OpType=BROADCAST, "
        "TensorShape=[1]), but Rank 0 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE).\n",
    ),
    (
        "Lightning-AI/pytorch-lightning#16828",
        "config_error",
        "Traceback (most recent call last):\n"
        '  File "device_parser.py", line 142, in _sanitize_gpu_ids\n'
        "lightning.fabric.utilities.exceptions.MisconfigurationException: You requested "
        "gpu: [0, 1, 2, 3]\n But your machine only has: [0]\n",
    ),
    (
        "NVIDIA/Megatron-LM#5026",
        "nan_loss",
        " iteration 2/ 100 | elapsed time per iteration (ms): 812.0 | lm loss: 1.08E+01 |\n"
        "ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank 3 at "
        "iteration #3 invocation #2 (message='found NaN in local grad norm for bucket #0 "
        "in backward pass before data-parallel communication collective')\n"
        "ERROR:megatron.core.rerun_state_machine:Rank 3, node n1, device 3, iteration "
        "#3: First rerun: unexpected result is reproducible within the tolerance (nan = nan).\n",
    ),
    (
        "Azure/cyclecloud-slurm#388",
        "node_fail|config_error",  # the cgroup has no space, not a disk
        "slurmstepd: error: common_file_write_uints: write value '3998' to "
        "'/sys/fs/cgroup/cpuset/slurm/uid_2/job_6/step_batch/cgroup.procs' failed: No "
        "space left on device\nslurmstepd: error: unable to add pids to "
        "'/sys/fs/cgroup/cpuset/slurm/uid_2/job_6/step_batch'\n"
        "slurmstepd: error: job_manager: exiting abnormally: Slurmd could not execve job\n",
    ),
    (
        "verl-project/verl#2106",
        "nccl_timeout",
        "step 1 | loss 2.90 | 4.1 s\nstep 2 | loss 2.80 | 4.1 s\nstep 3 | loss 2.70 | 4.1 s\n"
        "step 4 | loss 2.60 | 4.1 s\nstep 5 | loss 2.50 | 4.1 s\n"
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] "
        "Timed out waiting 1800000ms for recv operation to complete\n",
    ),
    (
        "ROCm/TheRock#1054",
        "oom_cuda",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 16.00 GiB. GPU 0 "
        "has a total capacity of 15.24 GiB of which 15.09 GiB is free. Of the allocated "
        "memory 0 bytes is allocated by PyTorch.\n",
    ),
]
