"""The command line: parses, calls the library, prints, exits. A file per command, loaded when it is called.

What a command does belongs to the packages below; only its terminal input and output is here.
"""
