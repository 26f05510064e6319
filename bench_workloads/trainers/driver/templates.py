"""Templates of command lines and configuration files, and their variables."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from sweep.contract import Run


def variables(run: Run, steps: int) -> dict[str, Any]:
    """A template's variables: layout, shape and sizes."""
    return {
        **dict(run.shape),
        **dataclasses.asdict(run.layout),
        "model": run.model,
        "nodes": run.nodes,
        "gpus": run.gpus,
        "gpus_per_node": run.gpus_per_node,
        "sequence_length": run.sequence_length,
        "global_batch_sequences": run.global_batch_sequences,
        "global_batch_tokens": run.global_batch_tokens,
        "dtype": run.dtype,
        "compile": run.compile,
        "warmup_iterations": run.warmup_iterations,
        "iterations": run.iterations,
        "steps": steps,
    }


def render(text: str, values: Mapping[str, Any], *, quoted: bool) -> str:
    """A template with its values; ``quoted``: each quoted as one shell argument. Raises ValueError.

    In jinja2's sandbox: a grid from somebody else can lay out a command line, and reach no Python object behind it.
    """
    import jinja2
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        finalize=(lambda value: shlex.quote(str(value))) if quoted else (lambda value: value),
        keep_trailing_newline=True,
    )
    try:
        return environment.from_string(text).render(values)
    except jinja2.TemplateError as error:
        raise ValueError(f"invalid value for a template: {type(error).__name__}: {error}") from error
