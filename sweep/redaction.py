"""Removes secrets from text: values of variables whose names say that they are secret, and tokens of known form. Pure.

A token without a known form, under an ordinary name, is not recognized.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import yaml

Parameter = TypeVar("Parameter")

REDACTED = "<redacted>"
SHORTEST = 6
"""characters: shorter values occur in ordinary text, and no service issues them"""

_WORDS = ("TOKEN", "SECRETS?(?:_[A-Z0-9]+)*", "PASSWORDS?", "PASSWD", "PASSPHRASE", "CREDENTIALS?")
_NAME = f"(?:(?:{'|'.join((*_WORDS, '(?:API|PRIVATE)_?KEYS?', 'ACCESS_?KEY(?:_?ID)?'))})(?:_?[0-9]+)?)"
_SECRET_NAME = re.compile(rf"(?:^|[A-Z0-9_]*_|[A-Z0-9]*){_NAME}$", re.IGNORECASE)
_TOKENIZERS = re.compile(r"(?:^|.*_)(?:BOS|EOS|EOD|EOT|PAD|UNK|SEP|CLS|MASK|STOP|SPECIAL)_?TOKEN$", re.IGNORECASE)
"""names of a tokenizer's special tokens"""
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
_OPTION = re.compile(rf"""--(?P<name>[A-Za-z][\w-]*)(?P<between>=|[ ]+)(?!--)(?P<value>[^\s"'\\,;<]{{{SHORTEST},}})""")
"""``--hf-token VALUE`` and ``--hf-token=VALUE``"""
_BEARER = re.compile(r"(?P<name>\b(?:Bearer|Basic)\s+)(?P<value>[\w.~+/=-]{16,})")
_URL = re.compile(r"(?P<name>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)(?P<value>[^\s:/@]+)(?=@)")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret: HF_TOKEN, AWS_SECRET_ACCESS_KEY; not TOKENIZERS_PARALLELISM."""
    return _SECRET_NAME.match(name) is not None and _TOKENIZERS.match(name) is None


def redacted_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables as a record states them: the value of a secret's name, or a token of known form, is not."""
    plain = Redaction(())
    return {name: REDACTED if is_secret_name(name) else plain.clean(value) for name, value in environment.items()}


def redacted_parameters(parameters: Mapping[str, Parameter]) -> dict[str, Parameter | str]:
    """A workload's parameters as a record states them: without what looks like a secret, at any depth."""
    plain = Redaction(())
    return {name: plain.clean_value(value) for name, value in parameters.items()}


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


def without_secrets(text: str) -> str:
    """YAML that a person wrote, such as a grid: without the values under a secret's name, however short they are.

    That is a name such as HF_TOKEN anywhere, or one in lower case among environment variables. Text that is no YAML is
    cleaned by its form only.
    """
    import yaml  # a pilot, which cleans records, needs none

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        root = None
    for start, end in sorted(_secret_places(root, secret=False, among_variables=False), reverse=True):
        text = text[:start] + REDACTED + text[end:]
    return Redaction(()).clean(text)


def _secret_places(node: yaml.Node | None, *, secret: bool, among_variables: bool) -> Iterator[tuple[int, int]]:
    """Where the scalars under a secret's name begin and end in the text."""
    import yaml

    if isinstance(node, yaml.ScalarNode):
        if secret and node.value:
            end = node.end_mark.index
            yield node.start_mark.index, end - (node.style in ("|", ">"))  # the new line after a block remains
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _secret_places(item, secret=secret, among_variables=among_variables)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            *above, name = str(key.value).split(".")
            variables = among_variables or "env" in above
            hidden = is_secret_name(name) and (name.isupper() or variables)
            yield from _secret_places(value, secret=secret or hidden, among_variables=variables or name == "env")


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
        text = _OPTION.sub(_without_value, text)
        text = _BEARER.sub(rf"\g<name>{REDACTED}", text)
        return _URL.sub(rf"\g<name>{REDACTED}", text)

    def clean_value(self, value: Any) -> Any:
        """JSON values without secrets: texts are cleaned at any depth."""
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, Mapping):
            return {key: self.clean_value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean_value(item) for item in value]
        return value


def _without_value(found: re.Match[str]) -> str:
    secret = is_secret_name(found["name"].replace("-", "_"))
    return f"--{found['name']}{found['between']}{REDACTED}" if secret else found[0]
