"""The command line: parses, calls the library, prints, exits. One file per command group, all imports lazy."""
