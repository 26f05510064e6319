"""`sweep memory --exact` as a user meets it: the table, JSON, mistakes, and a machine without torch."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from sweep.cli.memory import memory
from sweep.errors import SweepError

TINY = "{num_layers: 4, hidden_size: 128, num_heads: 4, num_kv_heads: 2, intermediate_size: 384, vocab_size: 256}"
MIXTURE = TINY[:-1] + ", num_experts: 4, experts_per_token: 2, moe_intermediate_size: 64}"


def run(*argv):
    return CliRunner().invoke(memory, [str(a) for a in argv], catch_exceptions=False, standalone_mode=False)


def mistakes(*argv):
    with pytest.raises(SweepError) as found:
        run(*argv)
    return "\n".join(str(m) for m in found.value.mistakes)


def test_json_of_the_heaviest_stage():
    argv = (TINY, "--pp", 2, "--dp", 2, "--zero", 1, "--sequence-length", 128, "--grad-accum", 8, "--exact", "--json")
    found = json.loads(run(*argv).stdout)
    assert (found["stage"], found["rank"], found["world_size"], found["formulas"]["stage"]) == (0, 0, 4, "first")
    assert found["peak_bytes"] == sum(found["parts"].values())
    assert found["formulas"]["peak_bytes"] == sum(found["formulas"]["parts"].values())
    assert found["parts"]["weights"] == found["formulas"]["parts"]["weights"] == 4 * found["parameters"]
    assert found["peak_bytes"] == pytest.approx(found["formulas"]["peak_bytes"], rel=0.25)
    assert (found["micro_batches_traced"], found["layout"]["grad_accum"], found["schedule_ran"]) == (3, 8, True)


def test_table_of_a_named_stage():
    text = run(TINY, "--pp", 2, "--grad-accum", 4, "--sequence-length", 128, "--exact", "--stage", 1).stdout
    assert "own step on rank 1 of 2, stage 1 of 2: dp=1 tp=1 pp=2" in text
    for words in ("traced    formulas", "gathered weights", "3 of 4 micro-batches", "the 1f1b schedule itself"):
        assert words in text


def test_a_mixture_of_experts_is_traced_with_its_experts_over_ep():
    argv = (MIXTURE, "--sequence-length", 128, "--exact", "--json")
    alone, split = (json.loads(run(*argv, "--dp", 2, "--ep", ep).stdout) for ep in (1, 2))
    assert alone["parameters"] - split["parameters"] == alone_experts(4) // 2
    assert alone["peak_bytes"] == pytest.approx(alone["formulas"]["peak_bytes"], rel=0.25)
    assert "every expert gets equally many tokens" in run(*argv[:-1]).stdout


def alone_experts(experts):
    """Weights of the tiny mixture's routed experts, in all layers."""
    shape = json.loads(TINY.replace("{", '{"').replace(", ", ', "').replace(": ", '": '))
    return shape["num_layers"] * experts * 3 * shape["hidden_size"] * 64


def test_a_layout_that_our_workload_rejects():
    text = mistakes(TINY, "--tp", 4, "--zero", 1, "--sequence-length", 126, "--exact")
    for reason in ("2 key-value heads cannot be split over tp=4", "the same as zero=0", "126 / cp=1 positions"):
        assert reason in text


def test_incompatible_options_are_reported_together():
    text = mistakes(TINY, "--exact", "--fits", "--gpus", 8, "--profile", "nanotron", "--stage", 2)
    for reason in ("not with --fits", "our own workload only", "no stage 2 of pp=1 (0 to 0)"):
        assert reason in text
    assert "add --exact" in mistakes(TINY, "--stage", 0)
    assert "our workload has no lion (adamw or adamw-bf16)" in mistakes(TINY, "--exact", "--optimizer", "lion")
    assert "our workload has no fp16 (bf16 or fp32)" in mistakes(TINY, "--exact", "--dtype", "fp16")


def test_without_torch_it_reports_what_to_install():
    code = "import sys; sys.modules['torch'] = None; from sweep.cli.main import main; main()"
    argv = [sys.executable, "-c", code, "memory", "1B"]
    found = subprocess.run([*argv, "--exact"], capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    assert found.stderr.count("error:") == 1
    assert "needs torch" in found.stderr
    assert "install torch" in found.stderr
    assert subprocess.run(argv, capture_output=True, timeout=60).returncode == 0, "the formulas do not need it"
