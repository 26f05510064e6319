"""Rows of results: the schema, a record from an attempt's measurements, and all records of a sweep as Parquet tables.

Only ``collect`` reads files. What is drawn of the tables belongs to ``analysis``, which may use ``schema`` and no more.
"""
