"""Formulas, of numbers or numpy arrays alike: shapes, FLOPs, hardware, memory, communication, step time, sizing. Pure.

What a measurement teaches about them belongs to ``sweep.search``. How trainers differ is here (``profiles``).
"""
