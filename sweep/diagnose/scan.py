"""Finds the lines of a text that show why something failed.

Linear in the text: the literals that each rule's pattern needs are searched in the lower-cased text, and the pattern
is tried only on lines that hold one. Lines are searched in a window, so that one very long line costs no more than
many short ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from sweep.diagnose.cuda_allocator import cuda_memory_advice
from sweep.diagnose.model import Hit, LineRule, Weight
from sweep.diagnose.rules_gpu import GPU
from sweep.diagnose.rules_launch import LAUNCH
from sweep.diagnose.rules_net import NET
from sweep.diagnose.rules_program import METRIC, PROGRAM
from sweep.diagnose.rules_site import SITE
from sweep.diagnose.tracebacks import exceptions, tracebacks
from sweep.outcomes import Outcome

_FIRST = (
    "nccl-info-abort",
    "xid-application",
    "xid-recoverable",
    "shm-full",
    "duplicate-gpu",
    "ib-memlock",
    "host-oom",
    "xid-contained",
    "gpu-lost",
    "host-malloc",
    "oom-cuda",
    "collective-timeout",
    "peer-gone",
    "import-binary",
    "nan-stop",
)
_LAST = ("nccl-warn", "child-failed", "cancelled")
_BY_NAME = {item.name: item for item in (*GPU, *SITE, *NET, *LAUNCH, *PROGRAM)}
_BETWEEN = [name for name in _BY_NAME if name not in _FIRST and name not in _LAST]
RULES: tuple[LineRule, ...] = tuple(_BY_NAME[name] for name in (*_FIRST, *_BETWEEN, *_LAST))
"""in the order in which they are tried: more specific ones come first"""

_BEFORE, _AFTER = 300, 1200
_WINDOWS = 8
"""characters of one line, for one key"""
_MOST_HITS = 300
"""hits of one rule in one text"""

_LONG, _TAIL, _SIMILAR = 4_000_000, 1_000_000, 20
"""size in characters above which a log is condensed, characters retained at its end, and similar lines retained"""
_NO_DIGITS = {ord(digit): None for digit in "0123456789"}

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ESCAPED = re.compile(r"""(?im)^[^"'=\n{]*\{(?!.*"(?:debug|info|warn(?:ing)?)").*\(most recent call last\):\\n.*""")
"""a traceback in a line of JSON, unless that is of a warning"""
_PROGRESS = re.compile(
    r"\b(?:global_step|iteration|iter|step|steps|batch|update|num_updates)\b['\"]?\s{0,3}[:=#\[(]?\s{0,8}(\d{1,18})(?!\d)"
    r"|\d%\|[^|\n]{0,200}\|\s{0,4}(\d{1,18})/\d{1,18} \[",
    re.IGNORECASE,
)
_FINITE = re.compile(METRIC + r"-?\d", re.IGNORECASE)
_NAN = re.compile(METRIC + r"nan\b", re.IGNORECASE)
_DONE = re.compile(
    r"^.{0,120}\b(?:training (?:is )?(?:complete|completed|finished|done)\b|finished training|done training"
    r"|after training is done|'train_runtime'|exiting program at iteration|successfully (?:completed|finished)"
    r"|(?:run|job|training) (?:completed|finished) successfully)",
    re.IGNORECASE | re.MULTILINE,
)
_NCCL_INFO = "NCCL INFO"
_RETRIES = "Retrying (Retry("
"""urllib3 tries a download or an upload again: no failure, whatever error it names"""


def scan(text: str) -> list[Hit]:
    """All matching lines of ``text``, in order, without those that the text shows to be recovered from."""
    text = _condensed(plain(text))
    lower = text.lower()
    claimed: dict[int, Hit] = {}
    for item in RULES:
        for hit in _hits(item, text, lower, claimed):
            claimed[hit.position] = hit
    found = tracebacks(text)
    for hit in exceptions(text, found, claimed):
        claimed.setdefault(hit.position, hit)
    spans = [(trace.start, trace.at) for trace in found if trace.overcome]
    hits = [hit for hit in claimed.values() if not any(start <= hit.position <= at for start, at in spans)]
    hits.sort(key=lambda hit: hit.position)
    return _still_standing(hits, text)


def plain(text: str) -> str:
    """Without carriage returns (progress bars), colours and escaped line ends of tracebacks (JSON), and such that
    lower-casing preserves every offset.

    Nor with the long s, which a pattern that ignores case takes for an s, and lower-casing does not.
    """
    text = _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = text.replace("\u0130", "I").replace("\u017f", "s")
    return _ESCAPED.sub(lambda line: line[0].replace("\\n", "\n"), text) if "last):\\n" in text else text


def continues(text: str, position: int) -> bool:
    """Does ``text`` report an iteration after ``position``, or anywhere that the work was done?"""
    return _PROGRESS.search(text, position) is not None or _DONE.search(text) is not None


def _condensed(text: str) -> str:
    """A long log without its repetitions: of lines that differ in digits alone the first few, and all of its end."""
    if len(text) < _LONG:
        return text
    cut = text.rfind("\n", 0, len(text) - _TAIL) + 1
    head = text[:cut]
    seen: Counter[str] = Counter()
    retained = []
    for line, key in zip(head.split("\n"), head.translate(_NO_DIGITS).split("\n"), strict=True):
        seen[key] += 1
        if seen[key] <= _SIMILAR:
            retained.append(line)
    return "\n".join(retained) + "\n" + text[cut:]


def _hits(item: LineRule, text: str, lower: str, claimed: dict[int, Hit]) -> Iterator[Hit]:
    found = 0
    tried: set[tuple[int, int]] = set()
    for key in item.keys:
        position, line, windows = lower.find(key), -1, 0
        while position >= 0 and found < _MOST_HITS:
            start = text.rfind("\n", 0, position) + 1
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            line, windows = start, windows + 1 if start == line else 0
            begin, stop = max(start, position - _BEFORE), min(end, position + _AFTER)
            if start in claimed or windows >= _WINDOWS:
                position = lower.find(key, end)
            elif (begin, stop) not in tried and _matches(item, text[begin:stop]):
                found += 1
                yield _hit(item, text[begin:stop], start, text)
                position = lower.find(key, end)
            else:
                tried.add((begin, stop))
                position = lower.find(key, stop)


def _matches(item: LineRule, window: str) -> bool:
    if (_NCCL_INFO in window and not item.name.startswith("nccl-info")) or _RETRIES in window:
        return False
    return item.pattern.search(window) is not None


def _hit(item: LineRule, window: str, start: int, text: str) -> Hit:
    advice = item.advice
    if item.outcome is Outcome.OOM_CUDA:
        advice = cuda_memory_advice(text[start : start + 2000]) or advice
    return Hit(
        item.outcome,
        item.weight,
        window.strip()[:500],
        advice,
        position=start,
        source=item.name,
        lasting=item.lasting,
    )


def _still_standing(hits: list[Hit], text: str) -> list[Hit]:
    """Drops recovered failures: iterations continued, values became finite again, or the work was already done."""
    if not hits:
        return hits
    went_on_at = _went_on_at(text, hits[0].position)
    done = _DONE.search(text, 0, hits[-1].position)
    nans = [hit.position for hit in hits if hit.source == "nan-metric"]
    # After the last line with a nan there are two with finite values.
    rest = text[text.find("\n", max(nans)) + 1 or len(text) :][:20_000] if nans else ""
    healed = sum(bool(_FINITE.search(line) and not _NAN.search(line)) for line in rest.splitlines()) >= 2
    retained = []
    for hit in hits:
        if hit.source == "nan-metric" and healed:
            continue
        if not hit.lasting and hit.position < went_on_at:
            continue
        if done and hit.position > done.start() and hit.weight <= Weight.CONSEQUENCE:
            continue
        retained.append(hit)
    return retained


def _went_on_at(text: str, start: int) -> int:
    """Where the last three iterations begin that count upwards: what failed before was recovered from. -1: nowhere."""
    highest = second = -1  # of the numbers further on: the greatest, and the greatest below a later one
    tail = max(start, len(text) - 400_000)
    for match in reversed(list(_PROGRESS.finditer(text, tail))):
        number = int(match.group(1) or match.group(2))
        if number < second:
            return match.start()
        second = max(second, number) if number < highest else second
        highest = max(highest, number)
    return -1
