"""Results measured elsewhere, converted to the record schema: maps of columns, units, conversion, plausibility.

The schema itself and our own results belong to ``sweep.records``.
"""
