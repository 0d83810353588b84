"""The work behind each command: from its options to a plain result."""
