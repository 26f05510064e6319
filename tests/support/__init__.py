"""Helpers of tests, none of which is a test. Light: ranks and pilots import from here."""
