"""What the papers report of ResNet-18 on CIFAR-10, and the bytes that it would take."""

from dataclasses import dataclass

from pages.render import markdown

WEIGHTS = 11_164_352  # of the convolutions and the linear layer of a ResNet-18 for CIFAR-10
MASK = WEIGHTS / 8  # one bit a weight: the smallest plain way to say which are kept

LI = "Li et al. 2024"
LIN = "Lin et al. 2025"


@dataclass(frozen=True)
class Published:
    """A published result; `own` if it is the method of the paper that reports it."""

    name: str
    accuracy: float
    floats: float
    other_bytes: float
    source: str
    counted: str
    own: bool = True

    @property
    def size(self) -> float:
        """Bytes: four for every stored number, and what is needed besides."""
        return 4 * self.floats + self.other_bytes


PUBLISHED = (
    Published(
        "dense VI", 95.13, 2 * WEIGHTS, 0, f"{LI}, Table 1", "mean and std of every weight",
    ),
    Published(
        "SSVI 90%", 94.58, 2 * 0.1 * WEIGHTS, MASK, f"{LI}, Table 1",
        "mean and std of 10% of the weights, a bit per weight for positions",
    ),
    Published(
        "SSVI 95%", 93.74, 2 * 0.56e6, MASK, f"{LI}, Table 2",
        "mean and std of 0.56M weights, a bit per weight for positions",
    ),
    Published(
        "2DGBNN", 91.72, 2 * 123_310 + 67 + 2 * 1_569, WEIGHTS, f"{LIN}, Table 3",
        "mean and std of 123,310 outliers and 1,569 Gaussians, 67 blends, and a byte per weight "
        "for its Gaussian, as the paper's Section 5.2 stores it (a byte tells only 256 apart)",
    ),
    Published(
        "mBNN", 93.20, 0.93e6, MASK, f"{LIN}, Table 3",
        "0.93M parameters, a bit per weight for positions", own=False,
    ),
    Published(
        "AEB", 91.84, 1.2e6, MASK, f"{LI}, Table 2",
        "one draw of 1.2M weights, a bit per weight for positions", own=False,
    ),
    Published(
        "VD", 90.6, 2 * 2.60e6, MASK, f"{LI}, Table 2",
        "mean and std of 2.60M weights, a bit per weight for positions", own=False,
    ),
    Published(
        "SBP", 90.1, 2 * 2.12e6, MASK, f"{LI}, Table 2",
        "mean and std of 2.12M weights, a bit per weight for positions", own=False,
    ),
    Published(
        "F-SGVB-LRT", 90.31, 23.4e6, 0, f"{LIN}, Table 3", "23.4M parameters", own=False,
    ),
)  # fmt: skip


def published_table() -> str:
    """Where each published point comes from."""
    lines = [
        [p.name, f"{p.accuracy:.2f}", f"{p.size / 1e6:.1f} MB", p.counted, p.source]
        for p in PUBLISHED
    ]
    return markdown(["published", "accuracy", "size", "counted at 4 bytes a number", "from"], lines)
