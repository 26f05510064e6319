"""Compiled code that the pilots of a sweep share: one node compiles, another gets it. What is compiled for itself."""

import os
import subprocess
import sys

import pytest
import torch

from bench_workloads.transformer import shared_code
from bench_workloads.transformer.shared_code import SharedCode
from benchmarks.cold_start import measured
from tests.support.paths import REPOSITORY
from tests.support.simulated import place

CPU = torch.device("cpu")


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A function: the shared code as a rank on a node of that name sees it, and that node's cache."""

    def on(name):
        scratch = tmp_path / name
        cache = scratch / "inductor"
        cache.mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
        monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
        compiled = str(tmp_path / "sweep" / "compiled")
        return SharedCode(place(scratch_dir=str(scratch / "r.1"), compiled_dir=compiled), CPU), cache

    return on


def compile_on(node, name, file, content):
    shared, cache = node(name)
    shared.fetch()
    (cache / file).parent.mkdir(exist_ok=True)
    (cache / file).write_text(content)
    shared.share()


def files_on(node, name):
    shared, cache = node(name)
    shared.fetch()
    return {str(path.relative_to(cache)): path.read_text() for path in cache.rglob("*") if path.is_file()}


def test_each_node_has_what_all_have_compiled_but_for_locks(node):
    compile_on(node, "a", "xy/one.so", "1")
    compile_on(node, "a", "locks/one.lock", "")
    compile_on(node, "b", "yz/two.so", "2")
    assert files_on(node, "c") == {"xy/one.so": "1", "yz/two.so": "2"}
    assert "yz/two.so" in files_on(node, "a")


def test_the_same_code_is_stored_once(node, tmp_path):
    for name in ("a", "b"):  # both before either has shared: they compile at the same time
        node(name)[0].fetch()
    for name in ("a", "b", "a"):
        shared, cache = node(name)
        (cache / "one.so").write_text("1")
        shared.share()
    assert len(list((tmp_path / "sweep" / "compiled").rglob("*.tar"))) == 1


def test_another_kind_of_node_gets_nothing(node, monkeypatch):
    compile_on(node, "a", "one.so", "1")
    monkeypatch.setattr(shared_code.hardware, "versions", lambda device: {"torch": "another"})
    assert files_on(node, "b") == {}


def test_code_that_others_may_have_written_is_not_used(node, tmp_path):
    compile_on(node, "a", "one.so", "1")
    next((tmp_path / "sweep" / "compiled").iterdir()).chmod(0o770)
    assert files_on(node, "b") == {}


def test_what_is_shared_is_bounded(node, monkeypatch):
    monkeypatch.setattr(shared_code, "MOST_BYTES", 20_000)
    compile_on(node, "a", "one.so", "1" * 5_000)
    compile_on(node, "a", "two.so", "2" * 30_000)
    assert list(files_on(node, "b")) == ["one.so"]


def test_a_user_s_own_cache_is_left_alone(node, tmp_path, monkeypatch):
    node("a")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "mine"))
    mine = SharedCode(place(scratch_dir=str(tmp_path / "a" / "r.1"), compiled_dir=str(tmp_path / "s")), CPU)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "one.so").write_text("1")
    mine.fetch()
    mine.share()
    assert not (tmp_path / "s").exists()


def test_without_a_place_to_write_a_run_goes_on(node, tmp_path):
    (tmp_path / "sweep").write_text("a file where the directory should be")
    compile_on(node, "a", "one.so", "1")
    assert files_on(node, "a") == {"one.so": "1"}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_second_pilot_compiles_nothing(tmp_path, monkeypatch):
    """Real pilots, one after the other. torch states its cache in the environment of a test that compiled before."""
    for name in shared_code.CACHES:
        monkeypatch.delenv(name, raising=False)
    first, second = measured(tmp_path / "sweep")
    assert first["graphs"] > 0 == second["graphs"]


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
