"""A log's last lines that state an error which no rule knows: the end is unknown then, and not healthy."""

from __future__ import annotations

import re

from sweep.diagnose.model import Hit, Weight
from sweep.diagnose.scan import continues, plain
from sweep.outcomes import Outcome

_LAST = 12
"""lines at a log's end among which an error is taken as its end"""
_STATES = re.compile(
    r"^(?!.*\b(?:WARN(?:ING)?|INFO|DEBUG)\b)(?!wandb:)(?:[^\s:\[\]]{0,80}(?:[:\]]|\[[^\]\n]{1,80}\]) ?){0,12}"
    r"(?:\[?(?:\w{1,40} )?(?:fatal|error|critical|panic)(?:: |\] |\]: | - )(?!\s*[-+]?[\d.])\S"
    r"|.{0,200}\b(?:exit(?:ed|s)?|ended|terminated|returned|failed)\b.{0,20}\b(?:code|status)\b"
    r"[ :=]{0,3}-?[1-9]\d{0,2}\b"
    r"|(?:status|state|phase)\b\W{1,20}(?:failed|error)\b)",
    re.IGNORECASE,
)
_ADVICE = "The log states this error at its end and no known cause: read what it writes before."


def stated_error(text: str) -> list[Hit]:
    """The first of the errors that the last lines state, where the log shows no further work; else none."""
    text = plain(text)
    start, lines = len(text), 0
    while start > 0 and lines < _LAST:
        before = text.rfind("\n", 0, start - 1) + 1
        lines += bool(text[before:start].strip())
        start = before
    for match in re.finditer(r"^.*\S.*$", text[start:], re.MULTILINE):
        line = match.group().strip()[:2000]
        if _STATES.search(line) and not continues(text, start + match.end()):
            return [Hit(Outcome.UNKNOWN, Weight.SIGN, line[:500], _ADVICE, start + match.start(), "stated")]
    return []
