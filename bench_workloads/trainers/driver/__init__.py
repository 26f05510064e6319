"""What all adapters of trainers share: starting the command, reading its lines, finding iterations, ranks' exchange.

What only one trainer does belongs to its own file, one folder up.
"""
