"""Tables of frozen recipes, and of differences on the same test images; none without their rows."""

from paired import difference

from pages.headline import BYTES
from pages.render import (
    NAMES,
    RESULTS,
    SCORES,
    Column,
    Row,
    Table,
    count,
    last_runs,
    number,
    results,
    text,
    value_of,
    whole,
)

METHOD, ESTIMATOR = Column("method", "row", text), Column("estimator", "estimator", text)
ALIKE = ("model", "data", "settings.cutout")  # of networks that are compared


def by_recipe() -> tuple[Table, ...]:
    """Every recipe's network, and how it differs from the plain one."""
    if not (RESULTS / "recipes.jsonl").exists():
        return ()
    measured = sorted({(row["data"], row["model"]) for row in results("recipes")})
    scores = (of_recipes(model, data) for data, model in measured)
    return *scores, *differences("recipes", ALIKE)


def of_recipes(model: str, data: str) -> Table:
    """What the recipes for this network and these data give."""
    return Table(
        f"By frozen recipes: {NAMES.get(model, model)} on {NAMES.get(data, data)}, cutout",
        (
            METHOD, ESTIMATOR, Column("seeds", "seed", count), *SCORES,
            Column("OOD AUROC", "auroc_entropy", number(3)),
            Column("weights", "active_weights", whole), BYTES,
        ),
        source=("recipes",),
        where={"model": model, "data": data},
        by=("row", "estimator"),
    )  # fmt: skip


def differences(source: str, alike: tuple[str, ...]) -> tuple[Table, ...]:
    """Each network less the plain one that is alike in these fields."""
    rows = [row for row in results(source) if "blocks" in row]
    if not any(row["row"] == "deterministic" for row in rows):
        return ()
    found = Table(
        "Less the deterministic network: these networks, 95% of a bootstrap of the test images",
        (
            *(Column(part.split(".")[-1], part, text) for part in alike), METHOD, ESTIMATOR,
            against(rows, alike, "accuracy", 2, 100), against(rows, alike, "nll", 4),
        ),
        source=(source,),
        where=lambda row: "blocks" in row and row["row"] != "deterministic",
        by=(*alike, "row", "estimator"),
        has_commands=False,
    )  # fmt: skip
    return (found,)


def against(
    rows: list[Row], alike: tuple[str, ...], score: str, digits: int, scale: float = 1
) -> Column:
    """The difference in a score, and its interval."""

    def show(found: list[Row]) -> str:
        wanted = [value_of(found[0], part) for part in (*alike, "measured_on")]
        plain = [
            row for row in rows
            if row["row"] == "deterministic"
            and [value_of(row, part) for part in (*alike, "measured_on")] == wanted
        ]  # fmt: skip
        if not plain:
            return ""
        sides = ([row["blocks"] for row in side] for side in (found, last_runs(plain)))
        mean, low, high = (scale * value for value in difference(*sides, score))
        return f"{mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"

    return Column({"nll": "NLL"}.get(score, score), dict, show)
