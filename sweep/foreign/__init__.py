"""Results that others measured, brought into the record schema: maps of columns, units, conversion, plausibility."""
