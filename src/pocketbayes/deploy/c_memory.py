"""Room for the buffers of a pass: those that do not live at the same time share it."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Slot:
    """So many numbers, needed from step `begin` to step `end`, both included."""

    size: int
    begin: int
    end: int
    offset: int = -1

    def __str__(self) -> str:
        """Where it lies, as C has it."""
        return f"memory + {self.offset}"


@dataclass
class Memory:
    """All slots of a pass."""

    slots: list[Slot] = field(default_factory=list)

    def slot(self, size: int, begin: int, end: int) -> Slot:
        """Another one."""
        self.slots.append(Slot(size, begin, end))
        return self.slots[-1]

    def place(self) -> int:
        """Gives every slot its place, the largest first, and returns how many numbers it takes."""
        placed: list[Slot] = []
        for slot in sorted(self.slots, key=lambda s: (-s.size, s.begin)):
            slot.offset = _lowest(slot, [s for s in placed if _meet(s, slot)])
            placed.append(slot)
        return max((s.offset + s.size for s in placed), default=0)


def _meet(a: Slot, b: Slot) -> bool:
    return a.begin <= b.end and b.begin <= a.end


def _lowest(slot: Slot, others: list[Slot]) -> int:
    """The lowest place that none of the others covers."""
    start = 0
    for other in sorted(others, key=lambda s: s.offset):
        if start + slot.size <= other.offset:
            break
        start = max(start, other.offset + other.size)
    return start
