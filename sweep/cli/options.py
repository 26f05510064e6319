"""Options that several commands share."""

from __future__ import annotations

import math
from typing import Any

import click

from sweep.cli.command import InputPath


class FiniteRange(click.FloatRange):
    """Numbers of a range. Click's has NaN in every range, and infinity where no end is stated."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Converts to a number; click reports values that are not one."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class Share(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # click 8.1's takes no argument
    """A fraction as people write it: 3%, 3 % or 0.03."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Converts to a fraction; click reports values that are not one."""
        from sweep.inputs.validation import share  # pydantic's import takes a while

        try:
            found = float(share(str(value)))
        except ValueError:
            self.fail(f"{value!r} is not a fraction: write 3% or 0.03", param, ctx)
        return found if 0 <= found < 1 else self.fail(f"{value!r} is out of range: from 0% to below 100%", param, ctx)


def _keys(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from sweep.inputs.grid import Grid

    return [f"{key}=" for key in Grid.model_fields if key.startswith(incomplete)]


directory_argument = click.argument("directory", metavar="[DIR]", required=False, type=InputPath())
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout, and nothing else."
)
overrides_option = click.option(
    "-o",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=_keys,
    help="Override a key of the grid, such as -o tp=[1,2]. Repeatable.",
)
site_option = click.option(
    "--site",
    "site_given",
    metavar="FILE_OR_NAME",
    help="Site file, or the name of one in ~/.config/sweep/sites/. Default: the grid's own site, or what is detected.",
)
anyway_option = click.option(
    "--anyway", is_flag=True, help="Compare even if no run is in both, or if model, sequence length or batch differ."
)
