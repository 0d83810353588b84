"""What this package raises."""


class LiteError(Exception):
    """A file, an input or an option is not what it must be; the sentence says what to do."""


def printable(text: str) -> str:
    """The text with control characters, which would drive a terminal, spelled out."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
