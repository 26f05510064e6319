"""Helpers of tests, without tests. Light: ranks and pilots import from here."""
