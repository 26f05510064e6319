"""The faults of the simulated workload, and the outcome of each."""

EXPECTED = {
    '""': "ok",
    "leak_child": "ok",
    "flood": "ok",
    "exception": "python_exception",
    "segfault": "segfault",
    "hang": "hang",
    "ignore_sigterm": "hang",
    "oom_cuda": "oom_cuda",
    "oom_host": "oom_host",
    "nan": "nan_loss",
    "import_error": "import_error",
    "port_in_use": "port_in_use",
    "disk_full": "disk_full",
    "nccl_timeout": "nccl_timeout",
    "nccl_error": "nccl_error",
    "cuda_error": "cuda_error",
    "config_error": "config_error",
    "config_mismatch": "config_mismatch",
    "signal": "unknown",
    "quiet_exit": "unknown",
}
