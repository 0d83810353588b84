"""What this package raises."""


class LiteError(Exception):
    """A file, an input or an option is not what it must be; the sentence says what to do."""
