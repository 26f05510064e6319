"""Removes secrets from text: values of variables whose names say that they are secret, and tokens of known form. Pure.

A token without a known form, under an ordinary name, is not recognized.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

Parameter = TypeVar("Parameter")

REDACTED = "<redacted>"
SHORTEST = 6
"""characters: shorter values occur in ordinary text, and no service issues them"""

_WORDS = ("TOKEN", "SECRET(?:_[A-Z0-9]+)*", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS?", "(?:API|PRIVATE)_?KEY")
_NAME = f"(?:{'|'.join((*_WORDS, 'ACCESS_?KEY(?:_?ID)?'))})"
_SECRET_NAME = re.compile(rf"(?:^|[A-Z0-9_]*_|[A-Z0-9]*){_NAME}$", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    rf"""(?P<name>\b(?:[A-Z0-9_]*{_NAME}|(?i:(?:[a-z0-9]+[_-])*(?:api[_-]?key|password|passwd|secret|
    access[_-]token|auth[_-]token|client[_-]secret|private[_-]key))))\b
    (?P<between>\\?["']?\s*[=:]\s*\\?["']?)(?P<value>[^\s"'\\,;{{}}]{{{SHORTEST},}})""",
    re.VERBOSE,
)
"""``NAME=value`` and ``"name": "value"``, the quotes also as they are within a JSON text"""
_KNOWN = re.compile(
    r"""
    \bhf_[A-Za-z0-9]{20,}                           # Hugging Face
    | \bgh[pousr]_[A-Za-z0-9]{30,} | \bgithub_pat_\w{30,}   # GitHub
    | \bglpat-[\w-]{20,}                            # GitLab
    | \bsk-[A-Za-z0-9_-]{20,}                       # OpenAI, Anthropic
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b                 # AWS
    | \bAIza[\w-]{30,}                              # Google
    | \bxox[abeprs]-[\w-]{10,}                      # Slack
    | \beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}        # a JSON web token
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?-----END[ ][A-Z ]*PRIVATE[ ]KEY-----
    """,
    re.VERBOSE | re.DOTALL,
)
"""forms that the services document for their tokens"""
_BEARER = re.compile(r"(?P<name>\b(?:Bearer|Basic)\s+)(?P<value>[\w.~+/=-]{16,})")
_URL = re.compile(r"(?P<name>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)(?P<value>[^\s:/@]+)(?=@)")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret: HF_TOKEN, AWS_SECRET_ACCESS_KEY; not TOKENIZERS_PARALLELISM."""
    return _SECRET_NAME.match(name) is not None


def redacted_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables as a record states them: the value of a secret's name, or a token of known form, is not."""
    plain = Redaction(())
    return {name: REDACTED if is_secret_name(name) else plain.clean(value) for name, value in environment.items()}


def redacted_parameters(parameters: Mapping[str, Parameter]) -> dict[str, Parameter | str]:
    """A workload's parameters as a record states them: without what looks like a secret. A name is not enough here:
    trainers have parameters like eos_token.
    """
    plain = Redaction(())
    return {name: plain.clean(value) if isinstance(value, str) else value for name, value in parameters.items()}


def secret_values(*documents: object) -> set[str]:
    """The texts under a secret's name, at any depth of parsed YAML, JSON or an environment."""
    return {value for document in documents for name, value in _texts(document, "") if name and len(value) >= SHORTEST}


def _texts(document: object, name: str) -> Iterator[tuple[str, str]]:
    """(the secret's name above it, or an empty text; the text)"""
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield from _texts(value, str(key) if is_secret_name(str(key)) else "")
    elif isinstance(document, list | tuple):
        for value in document:
            yield from _texts(value, name)
    elif isinstance(document, str):
        yield name, document


_LINE = re.compile(r"""(?m)^(?P<before>\s*(?:-\s*)?["']?)(?P<name>[\w.-]+)(?P<between>["']?\s*[:=]\s*)\S.*$""")
_IN_LINE = re.compile(r"""(?P<before>)\b(?P<name>[\w.-]+)(?P<between>["']?\s*[:=]\s*)[^\s,}\]]+""")


def without_secret_lines(text: str) -> str:
    """Text that a person wrote, such as a grid: whatever follows a secret's name on its line is removed, however
    short it is.
    """

    def shown(found: re.Match[str]) -> str:
        secret = is_secret_name(found["name"].rpartition(".")[2])
        return found["before"] + found["name"] + found["between"] + REDACTED if secret else found[0]

    return Redaction(()).clean(_IN_LINE.sub(shown, _LINE.sub(shown, text)))


class Redaction:
    """Removes known values, and what looks like a secret, from texts."""

    def __init__(self, values: Iterable[str]) -> None:
        spelled = {form for value in values for form in (value, json.dumps(value)[1:-1], shlex.quote(value))}
        longest_first = sorted(spelled, key=lambda form: (-len(form), form))
        self._values = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def clean(self, text: str) -> str:
        """The text without secrets."""
        if self._values is not None:
            text = self._values.sub(REDACTED, text)
        text = _KNOWN.sub(REDACTED, text)
        text = _ASSIGNMENT.sub(rf"\g<name>\g<between>{REDACTED}", text)
        text = _BEARER.sub(rf"\g<name>{REDACTED}", text)
        return _URL.sub(rf"\g<name>{REDACTED}", text)
