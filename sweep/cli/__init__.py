"""The command line: parses, calls the library, prints, exits. A file per command, loaded when it is called.

What a command does belongs to the packages below; only what it says and asks on a terminal is here.
"""
