"""Rows of results: the schema, a record from an attempt's measurements, and all records of a sweep as Parquet tables.

Only ``collect`` reads files. Figures of the tables are in ``analysis``, which may use only ``schema``.
"""
