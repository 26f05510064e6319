"""A user's script with a fault inside a real trainer: `real_fault.py FAULT SCRIPT ARGUMENTS…`. No part of sweep.

It runs SCRIPT, which trains by DeepSpeed or by Hugging Face's Trainer, and fails in the model's fourth forward pass on
rank 1, by a hook of torch. Of the faults, a hang in a collective, an allocation that the operating system refuses and a
missing package are real; CUDA's out-of-memory error is the real exception with the real text,
but raised by the hook, without a GPU.
"""

import os
import resource
import runpy
import subprocess
import sys
import time

import torch

RANK = os.environ["RANK"]
FULL = torch.OutOfMemoryError
"""by a name outside the diagnosis rules: the traceback shows the line that raises it too"""
CUDA_MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.02 GiB is free."
)


def hang():
    """The other ranks wait in the trainer's all-reduce indefinitely; a helper in a separate session does too."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    time.sleep(600)


def oom_cuda():
    raise FULL(CUDA_MESSAGE)


def oom_host():
    """An address space with 64 MiB to spare, and a tensor of 1 GiB."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))
    torch.ones(1 << 28)


def in_the_fourth_forward_pass(act):
    passes = []

    def before(module, _arguments):
        if type(module).__name__ in ("Decoder", "LlamaForCausalLM"):
            passes.append(1)
            if len(passes) == 4:
                act()

    torch.nn.modules.module.register_module_forward_pre_hook(before)


def without_a_package():
    """DeepSpeed needs mpi4py where no launcher set the rank; transformers' Trainer requires accelerate."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        del os.environ[name]
    sys.modules["accelerate"] = None


def main():
    fault, sys.argv = sys.argv[1], sys.argv[2:]
    if fault == "import_error":
        without_a_package()
    elif RANK == "1":
        in_the_fourth_forward_pass({"hang": hang, "oom_cuda": oom_cuda, "oom_host": oom_host}[fault])
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
