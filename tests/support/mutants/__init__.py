"""Mutation testing of the pure packages: `make mutants`.

A mutant is the code with one small change (cosmic-ray's operators). The tests that run the changed line must fail:
where they pass, a rule has no test. mutmut was tried too: it changes functions only, and here many rules are rows of
tables; it knows no sample.
"""
