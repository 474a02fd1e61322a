"""Stage `report` of studies/dvc.yaml: its page, from the studies that have been run.

Studies take hours and are run one after another, so it goes on while some are missing, and names
them.
"""

from pathlib import Path
from types import ModuleType

from resablate import findings, params, studies
from resablate.analyses import (
    architecture,
    cross_scale,
    depth,
    first_steps,
    gain,
    gain_optimiser,
    implementation,
    mechanism,
    mixer,
    phases,
    rescue,
    rounding,
    routing,
    strength,
)
from resablate.errors import run_command
from resablate.files import write_text
from resablate.params import Run
from resablate.provenance import Provenance
from resablate.report import contents, lineage, path, views
from resablate.report.page import Page, page
from resablate.report.views import Study

PIPELINE = "studies"
TITLE = "Partial residual ablations: the open questions"
STUDIES: tuple[ModuleType, ...] = (  # in the order of dvc.yaml
    phases,
    rounding,
    implementation,
    first_steps,
    gain,
    gain_optimiser,
    mixer,
    architecture,
    strength,
    depth,
    rescue,
    routing,
    mechanism,
    cross_scale,
)


def shown() -> list[Study]:
    """Return every study in reading order, those that have not been run without an answer."""
    run = {study.name: study for study in views.studies(findings.METRICS)}
    return [
        run.get(module.NAME) or Study(module.NAME, module.TITLE, module.QUESTION)
        for module in STUDIES
    ]


def sentences(of: list[Study]) -> list[str]:
    """Return how many studies have been run, and which have not."""
    missing = [study.title for study in of if study.conclusion is None]
    said = [f"{len(of) - len(missing)} of {len(of)} studies have been run."]
    if missing:
        said.append(f"Not run yet: {'; '.join(missing)}.")
    return said


def resolved() -> list[Run]:
    """Return the parameters of every arm of every study."""
    declared, root = studies.load(), params.load()
    return [
        declared.resolve(root, name, arm)
        for name in declared.studies
        for arm in declared.arms(name)
    ]


def listed(of: list[Study]) -> list[dict[str, str]]:
    """Return the runs of the studies that have been run, each once."""
    runs = {}
    for study in of:
        table = findings.METRICS / f"{study.name}_runs.csv"
        if study.conclusion is not None:
            runs |= {run["stage"]: run for run in views.runs(table, contents.RUN_COLUMNS)}
    return list(runs.values())


def content() -> Page:
    """Read everything that the page shows."""
    of = shown()
    numbers = views.numbers(study.table for study in of if study.table)
    return Page(
        pipeline=PIPELINE,
        title=TITLE,
        finding=sentences(of),
        studies=of,
        runs=listed(of),
        environment=contents.environment(resolved()),
        lineage=lineage.compact(Provenance(Path()), numbers, {}),
    )


def main() -> None:
    """Write plots/studies/report.html."""
    write_text(path(PIPELINE), page(content()))


if __name__ == "__main__":
    run_command(main)
