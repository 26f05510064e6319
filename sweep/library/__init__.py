"""What each command does, as a function: values in, a value out. Nothing here prints, exits or reads arguments.

``sweep/__init__.py`` offers the functions that scripts and notebooks need. Mistakes in the input raise ``SweepError``.
"""
