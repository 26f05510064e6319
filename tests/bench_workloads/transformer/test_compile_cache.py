"""Processes that share torch's caches of compiled code, on disk."""

import os
import subprocess
import sys

import pytest

from tests.support.paths import REPOSITORY

LAYER = """
import sys, torch
from torch.profiler import profile
from bench_workloads.transformer import attention, compiling
from bench_workloads.transformer.model import Decoder
from bench_workloads.transformer.weights import materialise
from sweep.physics.shapes import ModelShape

shape = ModelShape(
    num_layers=1, hidden_size=64, num_heads=2, num_kv_heads=2, intermediate_size=64, vocab_size=32, head_dim=32
)
with torch.device("meta"):
    model = Decoder(shape, range(1))
materialise(model, torch.device("cpu"), 1)
model.set_positions(torch.arange(64))
compiling.apply(model, on=True, attention=sys.argv[1])
tokens = torch.zeros(1, 64, dtype=torch.long)
with attention.chosen(sys.argv[1]):
    model(tokens).sum().backward()
    with profile() as profiled:
        model(tokens)
print(compiling.graphs_compiled() > 0, *(event.key for event in profiled.key_averages() if "attention" in event.key))
"""


FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_kernel_of_attention_is_compiled_for_itself(tmp_path):
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    called = []
    for kernel in ("flash", "math", "flash"):
        command = [sys.executable, "-c", LAYER, kernel]
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, capture_output=True, text=True)
        called.append(done.stdout.split())
    assert called == [["True", FLASH], ["True"], ["False", FLASH]]
