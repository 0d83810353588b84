"""Room for the buffers of a pass: those that do not live at the same time share it."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Slot:
    """So many numbers, needed from step `begin` to step `end`, both included.

    One that is made in the place of another, its `parent`, begins where that one does.
    """

    size: int
    begin: int
    end: int
    parent: "Slot | None" = None
    offset: int = -1

    def __str__(self) -> str:
        """Where it lies, as C has it."""
        return f"memory + {self.offset}"


@dataclass(frozen=True)
class At:
    """A place behind the first number of a slot or of a table."""

    first: object
    offset: int

    def __str__(self) -> str:
        """As C has it."""
        return f"{self.first} + {self.offset}" if self.offset else str(self.first)


@dataclass
class Memory:
    """All slots of a pass."""

    slots: list[Slot] = field(default_factory=list)

    def slot(self, size: int, begin: int, end: int, parent: Slot | None = None) -> Slot:
        """Another one."""
        self.slots.append(Slot(size, begin, end, parent))
        return self.slots[-1]

    def place(self) -> int:
        """Gives every slot its place, the largest first, and returns how many numbers it takes."""
        lines: dict[Slot, list[Slot]] = {}
        for slot in self.slots:
            lines.setdefault(_first(slot), []).append(slot)
        placed: list[Slot] = []
        for _, line in sorted(lines.items(), key=lambda item: (-item[0].size, item[0].begin)):
            start = _lowest(line, placed)
            for slot in line:
                slot.offset = start
            placed += line
        return max((s.offset + s.size for s in placed), default=0)


def _first(slot: Slot) -> Slot:
    """That in whose place this one was made."""
    return slot if slot.parent is None else _first(slot.parent)


def _meet(a: Slot, b: Slot) -> bool:
    return a.begin <= b.end and b.begin <= a.end


def _lowest(line: list[Slot], placed: list[Slot]) -> int:
    """The lowest place where none of a line lies in that of another that lives with it."""
    pairs = [(slot, other) for slot in line for other in placed if _meet(slot, other)]
    start, moved = 0, True
    while moved:
        moved = False
        for slot, other in pairs:
            if start < other.offset + other.size and other.offset < start + slot.size:
                start, moved = other.offset + other.size, True
    return start
