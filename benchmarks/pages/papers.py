"""Which of the papers' tables are there, and which of their rows cannot be."""

from plans import TABLES
from run import is_done

from pages.common import table
from pages.published import LI, LIN

PAPERS = {"ssvi": LI, "sharing": LIN}


def papers_tables() -> str:
    """A line for each table, with how much of it was run."""
    lines = []
    for name, planned in TABLES.items():
        done = sum(is_done(job) for job in planned.jobs)
        absent = "; ".join(planned.absent)
        lines.append(
            [f"`{name}`", source_of(name), planned.about, f"{done} of {len(planned.jobs)}", absent]
        )
    head = ["table", "of", "what it shows", "runs that are there", "without"]
    return (
        "## All tables\n\n"
        "`python run.py TABLE --root DATA` runs what is missing of one. A run is a command with "
        "one seed; some rows below are of earlier commands, which it does not count.\n\n"
        + table(head, lines)
    )


def source_of(name: str) -> str:
    """The paper's name for it; ours have none."""
    paper, _, rest = name.partition("-")
    if paper not in PAPERS:
        return ""
    place = f"Table {rest}" if rest.isdigit() else rest.replace("-", " ").capitalize()
    return f"{PAPERS[paper]}, {place}"
