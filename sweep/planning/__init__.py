"""The parts of ``sweep.plan``: candidates as columns, rules, reasons, order. Pure."""
