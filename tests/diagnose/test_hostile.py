"""A log that is made to be slow is diagnosed in time in proportion to its length, and by what it says."""

import pytest

from sweep.diagnose.diagnose import diagnose_text
from sweep.diagnose.model import LineRule
from sweep.diagnose.nccl_log import summarize
from sweep.diagnose.scan import RULES
from sweep.outcomes import Outcome
from tests.support.hostile_texts import cpu_s, grows_faster, hostile, text_of

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
LINE = 1400
"""characters: what a rule reads of a line at once"""


def log_against(rule: LineRule, characters: int) -> str:
    """Lines on which the rule is slow if it can be, half of them long, and such a text on one line."""
    texts = hostile(rule.pattern)
    each = characters // (3 * len(texts))
    long = [text_of(one, LINE) + "\n" for one in texts for _ in range(max(1, each // LINE))]
    short = ["".join(one) + "\n" for one in texts for _ in range(max(1, each // len("".join(one))))]
    return "".join((*long, *short))[: characters * 2 // 3] + text_of(texts[-1], characters // 3)


def test_no_rule_makes_the_diagnosis_grow_faster_than_the_log():
    sizes = [6000, 24_000]
    assert [r.name for r in RULES if grows_faster(lambda n, r=r: diagnose_text(log_against(r, n)), sizes, 0.03)] == []


SLOW = {
    "digits of a size": ((OUT_OF_MEMORY + "1" * 1950 + "\n") * 100, Outcome.OOM_CUDA),
    "digits behind a size": ((OUT_OF_MEMORY + "1 GiB " + "8" * 1300 + "\n") * 150, Outcome.OOM_CUDA),
    "digits of an iteration": ("CUDA out of memory\n" + "1" * 200_000, Outcome.OOM_CUDA),
    "many losses": ("loss: nan\n" + "loss" * 50_000, Outcome.NAN_LOSS),
    "many reports of a connection": (("NCCL WARN connect " * 77 + "\n") * 140, Outcome.NCCL_ERROR),
    "blanks": (("FATAL: " + " " * 1380 + "\n") * 140, None),
    "colons": ("a:" * 160, None),
    "brackets": ("[a]" * 160, None),
}


@pytest.mark.parametrize("name", SLOW)
def test_what_was_slow_is_not_any_more(name):
    """200 kB at most. Each took over 2 s; several, minutes."""
    log, outcome = SLOW[name]
    found = []
    assert cpu_s(lambda: found.append(diagnose_text(log).outcome)) < 1.0
    assert found == [outcome]


def test_an_iteration_of_thousands_of_digits_is_no_progress():
    """Python refuses to read it."""
    assert diagnose_text(f"{OUT_OF_MEMORY}1 GiB\nstep {'9' * 5000}\n").outcome is Outcome.OOM_CUDA


def test_a_number_of_too_many_digits_is_none_of_a_communicator():
    """Python refuses to read a longer one, and no journal holds it."""
    lines = ["n1:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 nNodes 1 cudaDev 0 - Init COMPLETE"]
    for text in ("{} coll channels, 0 nvls channels", "comm 0x1 rank {} nranks 8 x",
                 "comm 0x1 rank 0 nranks {} x", "comm 0x1 rank 0 nranks 2 nNodes {} x",
                 "Init timings: rank 0 nranks 2 total {}.5,",
                 "Init timings: rank 0 nranks 2 total 0.5, bootstrap {}.5"):  # fmt: skip
        lines += [f"n1:1:1 [0] NCCL INFO {text.format('9' * digits)}" for digits in (12, 400, 1900, 5000)]
    found = summarize(lines)
    assert found is not None
    assert (found.nodes, found.coll_channels, found.init_s, found.bootstrap_s) == (1, (), 0.5, None)
