"""Study `depth`: the four configurations with fewer and more layers."""

from resablate import findings, variants
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.studyruns import Source, StudyArm, StudyRuns
from resablate.variants import Variants

NAME, AXIS, BASE = "depth", "depth", "base"
TITLE = "Depth"
QUESTION = "From how many layers on does removing a skip collapse the model?"


def analyse(runs: StudyRuns, base: list[StudyArm]) -> Finding:
    """Return the study's finding; the root's arms stand among the others by their depth."""
    of = Variants(
        TITLE,
        QUESTION,
        "Layers",
        AXIS,
        runs,
        base,
        order=lambda arm: arm.run.n_layer,
        name=lambda arm: f"{arm.run.n_layer} layers",
    )
    return of.finding()


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    return analyse(*variants.load(source, NAME, AXIS, BASE))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
