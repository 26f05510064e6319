"""Removes secrets from text: values of variables whose names say that they are secret, and tokens of known form. Pure.

A token without a known form, under an ordinary name, is not recognized.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

REDACTED = "<redacted>"
SHORTEST = 6
"""characters: shorter values occur in ordinary text, and no service issues them"""

_NEVER_OTHERWISE = r"secrets?|passwords?|passwd|passphrases?|credentials?|jwt"
_OF_A_KEY = (
    "api|access|secret|private|auth|account|storage|shared|encryption|signing|master|deploy|deployment|service|ssh|hmac|"
    "root|subscription|license|openai|anthropic|kaggle|wandb|comet|ngc|hf"
)
"""what comes before ``key`` in the names of keys that are secret; a cache key or a partition key is none"""
_TOKENIZERS = re.compile(
    "bos|eos|eod|eot|pad|unk|sep|cls|mask|stop|special|start|end|begin|image|audio|video|new|next|first|last"
)
"""what comes before ``token`` in the names of a tokenizer's special tokens"""
_ISSUED = re.compile("api|access|auth|refresh|session|security|bearer|oauth|bot|user|hub|personal|deploy|csrf")
"""what comes before ``token`` in the names of tokens that a service issues, in lower case as well"""
_ROTATED = re.compile("v|old|new|prev|previous|current|next|backup|bak|rotated|prod|dev|staging|test|ro|rw|id")
"""what follows the name of a secret that is kept in several versions"""
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_NEVER_ELSE = re.compile(rf"\w*(?:{_NEVER_OTHERWISE})$")
_KEY = re.compile(rf"(?:.* )?(?:{_OF_A_KEY}) ?keys?$")

_CHARACTERS = r"(?:[^\s\"'\\]|\\\\|\\[^\"'\\nrtu])"
_ESCAPES = r"\\{0,16}"
_VALUE = rf"""(?:(?P<embedded>\\{{1,16}}["'])
    (?P<within>(?:\\\\(?P=embedded)|(?!\\{{1,16}}["'])[^"\n]){{0,2000}})(?=(?P=embedded))
    |(?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^"\\\n]){{0,2000}})(?=(?P=quote))
    |{_ESCAPES}["']?(?P<bare>{_CHARACTERS}{{1,2000}}))"""
"""a value in quotes, in quotes as they are within a JSON text, or up to the next space or quote"""
_WORDS = ("token", "secret", "pass", "pwd", "credential", "key", "pat", "auth", "jwt")
_LONGEST_NAME = 120
_MOST_ISSUED = 500
"""tokens of one text that are removed wherever they occur"""
_PILOT = re.compile(r".*-[0-9a-f]{8}-p\d+")
_NAME = re.compile(r"[A-Za-z0-9_-]*")
_BETWEEN = rf"""(?P<between>{_ESCAPES}["']?\s{{0,4}}(?:=>|->|[=:])\s{{0,4}}|[ \t]{{1,4}})"""
_NAMED = re.compile(_BETWEEN + _VALUE, re.VERBOSE)
"""after the name: ``NAME=value``, ``"name": "value"``, ``name -> value``, ``ENV NAME value``"""
_FORM = re.compile(
    _BETWEEN + _ESCAPES + r"""["']?(?P<bare>[\w.~+$-]{1,4000}(?:=[\w.~+$-]{0,4000}){0,4})(?![^\s"'\\,;)}\]])""",
    re.VERBOSE,
)
"""the same with a value that has a token's form"""
_KNOWN = re.compile(
    r"""
    \bhf_[A-Za-z0-9]{20,}                           # Hugging Face
    | \bgh[pousr]_[A-Za-z0-9]{30,} | \bgithub_pat_\w{30,}   # GitHub
    | \bgl(?:pat|dt|rt|cbt|ptt|ft|soat)-[\w-]{20,}  # GitLab
    | \bsk-[A-Za-z0-9_-]{20,}                       # OpenAI, Anthropic
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b                 # AWS
    | \bAIza[\w-]{30,} | \bya29\.[\w-]{20,}         # Google
    | \bxox[abeprs]-[\w-]{10,} | \bhooks\.slack\.com/services/[\w/]+ | \bdiscord(?:app)?\.com/api/webhooks/[\w/-]+
    | \beyJ(?:(?!-eyJ)[\w-]){10,}\.[\w-]{10,}\.[\w-]{5,}        # a JSON web token
    | \b(?:nvapi-|dckr_pat_|pypi-|npm_|r8_|wandb_v1_|dapi|glsa_)[\w-]{20,}   # NVIDIA, Docker, PyPI, npm, Replicate, …
    | -----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----
      (?:(?:(?!-----BEGIN).){0,20000}?-----END[ ][A-Z ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----
        |(?:(?:\s|\\n)*(?:\[?\w{1,12}\]?:[ ])?[A-Za-z0-9+/=]{16,})*)   # one whose end was cut off
    """,
    re.VERBOSE | re.DOTALL,
)
"""forms that the services document for their tokens"""
_OPTION = re.compile(
    rf"""--(?P<name>[A-Za-z](?:(?!--)[\w-])*)(?P<between>=|[ ]+)(?P<open>{_ESCAPES}["']?)(?!--)"""
    rf"""(?P<value>[^\s"'\\,;<]{{{SHORTEST},}})"""
)
"""``--hf-token VALUE`` and ``--hf-token=VALUE``"""
_AFTER = tuple(
    (keys.split("|"), re.compile(pattern, re.VERBOSE))
    for keys, pattern in (
        (
            "authorization",
            r"""(?P<name>\b(?i:(?:proxy-)?authorization)\\*["']?\s*[:=]\s*\\*["']?(?:(?i:bearer|basic|token|digest)\s+)?)
            (?P<value>[\w.~+/=-]{6,})""",
        ),
        ("bearer|basic", r"(?P<name>\b(?:(?i:bearer)|Basic)\s+)(?P<value>[\w.~+/=-]{16,})"),
        ("cookie", r"(?P<name>\b(?i:(?:set-)?cookie):\s*)(?P<value>[^\"'\\\n]{6,})"),
        ("password", r"(?P<name>\bpassword(?:\s|\\n)+)(?P<value>(?=[\w-]*\d)[\w.~+/=-]{16,})"),  # netrc
        ("wandb", r"(?P<name>\bwandb\s+login\s+(?:--\S+\s+){0,9})(?P<value>[\w-]{16,})"),
        ("sshpass", r"(?P<name>\bsshpass\s+-p\s*\\*[\"']?)(?P<value>[^\s\"'\\]+)"),
        (
            "curl",
            r"""(?P<name>\bcurl\s(?:(?:(?!\bcurl\s)[^\n]){0,200}?\s)?(?:-u|--user)[ =]\\*["']?[^\s:"'\\]{1,99}:)
            (?P<value>[^\s"'\\]+)""",
        ),
        ("$oauthtoken", r"(?P<name>[$]oauthtoken\b[^\w\n]{1,8})(?P<value>[\w-]{16,})"),
        (
            "?|&",
            r"""(?P<name>[?&](?i:x-amz-(?:signature|security-token|credential)|x-goog-signature|sig|signature|auth|key|token|
            password|secret|[a-z]{1,20}[_-]?token|[a-z]{1,20}[_-]?key)=)(?P<value>[^&\s"'\\]{6,})""",
        ),
        (
            "@",
            r"""(?P<name>\b[a-z][a-z0-9+.-]{0,20}://[^\s:/@"'\\]{0,99}:)
            (?=[^\s"'\\]{1,200}@)(?P<value>(?!\d{1,5}/)[^\s"'\\]{1,200})(?=@[\w.-]+(?:[:/?\s"'\\,)\]]|$))""",
        ),
        ("@", r"(?P<name>\b[a-z][a-z0-9+.-]{0,20}://)(?P<value>(?=[\w-]{0,200}\d)[\w-]{16,200})(?=@)"),
    )
)
"""a secret after words that announce one"""


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret: HF_TOKEN, AWS_SECRET_ACCESS_KEY; not TOKENIZERS_PARALLELISM."""
    return _is_secret(name.upper(), "")


def _is_secret(name: str, value: str) -> bool:
    """Is ``value`` the secret that ``name`` says? Where the name leaves it open, the value must have a token's form."""
    words = [word.lower() for word in _PARTS.findall(name)]
    while len(words) > 1 and _ROTATED.fullmatch(words[-1]):
        words.pop()
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    upper = name.isupper()
    if _NEVER_ELSE.match(last) or _KEY.match(" ".join(words)) or (upper and before.startswith("secret")):
        return True
    if last.endswith("token") and not _TOKENIZERS.fullmatch(before):
        return upper or _ISSUED.fullmatch(before) is not None or _has_form_of_token(value)
    if last in ("pass", "pwd", "pat") and before not in ("", "old"):
        return upper or _has_form_of_token(value)
    return last == "auth" and _has_form_of_token(value)


def _has_form_of_token(value: str) -> bool:
    """As services issue them. The journal's own ``token`` is the job name of a pilot, and none."""
    return (
        len(value) >= 18
        and not _PILOT.fullmatch(value)
        and bool(re.fullmatch(r"(?=.*\d)(?=.*[A-Za-z])[\w.~+=$-]+", value))
    )


def redacted_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables as a record states them: the value of a secret's name, or a token of known form, is not."""
    plain = Redaction(())
    return {name: REDACTED if is_secret_name(name) else plain.clean(value) for name, value in environment.items()}


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
    except (yaml.YAMLError, RecursionError):
        root = None
    for start, end in sorted(_secret_places(root), reverse=True):
        text = text[:start] + REDACTED + text[end:]
    return Redaction(()).clean(text)


def secrets_shown(text: str) -> list[str]:
    """Where a text that ``without_secrets`` cleans holds secrets: these lines without them, cut to what is around."""
    shown, key, clean = [], "", without_secrets(text)
    for line in [] if clean == text else clean.splitlines():
        key = f"{line.strip()} " if line.rstrip().endswith(":") else key
        at, is_item = line.find(REDACTED), line.lstrip().startswith("- ")
        if at >= 0:
            shown.append(key * is_item + line[max(0, at - _LONGEST_NAME) : at + len(REDACTED)].strip())
    return shown


def _secret_places(root: yaml.Node | None) -> set[tuple[int, int]]:
    """Where the scalars under a secret's name begin and end in the text. By aliases there may be many ways to a node,
    also from within itself.
    """
    import yaml

    places: set[tuple[int, int]] = set()
    seen, waiting = set(), [(root, False, False)]
    while waiting:
        node, secret, among_variables = waiting.pop()
        if (way := (id(node), secret, among_variables)) in seen:
            continue
        seen.add(way)
        if isinstance(node, yaml.ScalarNode) and secret and node.value:
            end = node.end_mark.index
            places.add((node.start_mark.index, end - (node.style in ("|", ">"))))  # the new line after a block remains
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(item, secret, among_variables) for item in node.value]
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                *above, name = str(key.value).split(".")
                variables = among_variables or "env" in above
                hidden = is_secret_name(name) and (name.isupper() or variables)
                waiting.append((value, secret or hidden, variables or name == "env"))
    return places


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
        lower = text.lower()
        text = _without_named(_KNOWN.sub(REDACTED, text))
        text = _OPTION.sub(_without_option, text)
        for keys, pattern in _AFTER:
            if any(key in lower for key in keys):
                text = pattern.sub(rf"\g<name>{REDACTED}", text)
        return text

    def clean_value(self, value: Any) -> Any:
        """JSON values without secrets: texts are cleaned at any depth."""
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, Mapping):
            return {key: self.clean_value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean_value(item) for item in value]
        return value


def _without_named(text: str) -> str:
    """Without the values of names that say that they are secret; one with a token's form is removed everywhere."""
    parts, done, issued = [], 0, set()
    for start, after in _names(text):
        name = text[start:after]
        pattern = None if start < done else _pattern_of(name)
        found = pattern.match(text, after) if pattern else None
        place = _secret_value(name, found) if found else None
        if place is not None:
            begin, end, spelled = place
            parts += [text[done:begin], spelled]
            issued.add(text[begin:end])
            done = end
    clean = "".join(parts) + text[done:]
    for value in sorted(filter(_has_form_of_token, issued), key=len, reverse=True)[:_MOST_ISSUED]:
        clean = clean.replace(value, REDACTED)
    return clean


@functools.lru_cache(maxsize=10_000)
def _pattern_of(name: str) -> re.Pattern[str] | None:
    """What finds the value of a name; None if that is no secret."""
    if _is_secret(name, ""):
        return _NAMED
    return _FORM if _is_secret(name, "0a" * 9) else None


def _names(text: str) -> list[tuple[int, int]]:
    """Where the names begin and end that hold one of ``_WORDS``; of a very long one its end, which decides."""
    lower, ends = text.replace("\u0130", "I").lower(), set()
    for word in _WORDS:
        at = lower.find(word)
        while at >= 0:
            ends.add(end := _length(text, at) + at)
            at = lower.find(word, max(end, at + 1))
    return sorted((end - _length(text[max(0, end - _LONGEST_NAME) : end][::-1], 0), end) for end in ends)


def _length(text: str, at: int) -> int:
    """Of the name that begins there."""
    name = _NAME.match(text, at)
    assert name is not None  # it matches the empty text
    return len(name.group())


def _secret_value(name: str, found: re.Match[str]) -> tuple[int, int, str] | None:
    """Where the value begins and ends, and what replaces it; None where it is no secret."""
    groups = found.groupdict()
    group = next(name for name in ("within", "quoted", "bare") if groups.get(name) is not None)
    value, start = found[group], found.start(group)
    unquoted = found.string[start - 1] not in "\"'"
    number = group == "bare" and unquoted and found["between"].startswith('"')  # of JSON, which must remain JSON
    if number:
        value = re.split(r"[,}\]]", value)[0]
    apart = not found["between"].isspace() or (name.isupper() and _has_form_of_token(value))
    if len(value) < SHORTEST or value.startswith(REDACTED) or not apart or not _is_secret(name, value):
        return None
    return start, start + len(value), f'"{REDACTED}"' if number else REDACTED


def _without_option(found: re.Match[str]) -> str:
    secret = is_secret_name(found["name"].replace("-", "_"))
    return f"--{found['name']}{found['between']}{found['open']}{REDACTED}" if secret else found[0]
