"""Results that others measured, brought into the record schema: maps of columns, units, conversion, plausibility.

The schema itself and what we measured belong to ``sweep.records``.
"""
