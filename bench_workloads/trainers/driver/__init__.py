"""What all adapters of trainers share: starting the command, reading its lines, iterations out of them, exchange of ranks.

What only one trainer does belongs to its own file, one folder up.
"""
