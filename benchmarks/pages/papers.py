"""Which of the papers' tables are there, and which of their rows cannot be."""

from plans import TABLES
from run import is_done

from pages.common import anchor, table
from pages.published import LI, LIN

PAPERS = {"ssvi": LI, "sharing": LIN}
_SPARSE = "Sparse subspace VI, ResNet-18, CIFAR-10"
_SHARED = "Weight sharing"
SECTIONS = {
    "headline": ("At a glance",),
    "ssvi-1": ("At a glance", "Baselines, ResNet-18, CIFAR-10", _SPARSE),
    "ssvi-2": (_SPARSE, "Files of trained networks"),
    "ssvi-3": (_SPARSE,),
    "ssvi-figure-2": (_SPARSE,),
    "ssvi-figure-4": ("Corrupted images",),
    "sharing-3": (_SHARED,),
    "sharing-4": (_SHARED,),
    "sharing-5": (_SHARED,),
    "sharing-6": ("What sharing takes", "Prediction with shared weights"),
    "sharing-7": (_SHARED,),
    "sharing-8": (_SHARED,),
    "sharing-10": (_SHARED,),
    "spike-slab": ("Accuracy against density",),
    "chain": ("Files of trained networks",),
    "baselines": ("Baselines, ResNet-18, CIFAR-10", "Every method on the same work"),
    "peers": ("Other libraries on the same work",),
    "side-by-side": ("Every method on the same work",),
    "regressions": ("Every method on the UCI regressions",),
}


def papers_tables() -> str:
    """A line for each table, with how much of it was run."""
    lines = []
    for name, planned in TABLES.items():
        done = sum(is_done(job) for job in planned.jobs)
        places = "; ".join(f"[{title}](#{anchor(title)})" for title in SECTIONS[name])
        runs, absent = f"{done} of {len(planned.jobs)}", "; ".join(planned.absent)
        lines.append([f"`{name}`", source_of(name), planned.about, places, runs, absent])
    head = ["table", "of", "what it shows", "numbers", "runs that are there", "without"]
    return (
        "## All tables\n\n"
        "`python run.py TABLE --root DATA` runs what is missing of one, and with `--into MINE` "
        "all of it once more, with rows in a folder of your own (`--dry-run` shows the commands). "
        "A run is a command with one seed; some rows below are of earlier commands, which it does "
        "not count.\n\n" + table(head, lines)
    )


def source_of(name: str) -> str:
    """The paper's name for it; ours have none."""
    paper, _, rest = name.partition("-")
    if paper not in PAPERS:
        return ""
    place = f"Table {rest}" if rest.isdigit() else rest.replace("-", " ").capitalize()
    return f"{PAPERS[paper]}, {place}"
