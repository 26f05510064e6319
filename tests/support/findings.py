"""What a check found, as one error."""

from __future__ import annotations

from collections.abc import Iterable


class ConformanceError(AssertionError):
    """A plug-in does not do what its interface promises; ``findings`` has every deviation as text."""

    def __init__(self, subject: str, findings: tuple[str, ...]) -> None:
        super().__init__("\n".join([f"{subject} does not conform:", *(f"- {finding}" for finding in findings)]))
        self.findings = findings


def require_none(subject: str, findings: Iterable[str]) -> None:
    """Raise ConformanceError if there is any finding; equal ones are listed once."""
    distinct = tuple(dict.fromkeys(findings))
    if distinct:
        raise ConformanceError(subject, distinct)


def named(error: BaseException) -> str:
    """An error's type and message."""
    return f"{type(error).__name__}: {error}"
