"""The prices and rates that a sweep's site file states, as columns of its results. They may change afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sweep.contract import node_group_of

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = ("dollars_per_gpu_hour", "co2_g_per_kwh", "failures_per_gpu_day", "restart_time")
"""of the site file, and columns of the results"""

Prices = Mapping[str, Mapping[str, float | None]]
"""key -> node group -> its price; the group "" is that of a site without groups"""


def prices_of(text: str, file: str) -> Prices:
    """What the text of a site file states. ``file``: its name, for SweepError where it is not valid."""
    if not any(key in text for key in KEYS):
        return {}
    from sweep.inputs.site import parse_site

    parts = parse_site(text, file).parts
    return {key: {group: getattr(part, key) for group, part in parts.items()} for key in KEYS}


def priced(table: pa.Table, prices: Prices) -> pa.Table:
    """The table with a column for each price, by the node group of each row's model."""
    import pyarrow as pa

    groups = [node_group_of(model) for model in table["model"].to_pylist()] if prices else [""] * table.num_rows
    for key in KEYS:
        at, of_group = table.schema.get_field_index(key), prices.get(key, {})
        values = pa.array([of_group.get(group) for group in groups], type=pa.float64())
        table = table.set_column(at, table.schema.field(key), values)
    return table


def has_other_prices(table: pa.Table, prices: Prices) -> bool:
    """Whether the table's prices are not these: they were changed since. Other columns are not compared."""
    return not table.select(KEYS).equals(priced(table, prices).select(KEYS))
