"""Study `depth`: the four configurations with fewer and more layers."""

from resablate import findings, variants
from resablate.errors import run_command
from resablate.studyruns import StudyArm, StudyRuns
from resablate.variants import Variants

NAME, AXIS, BASE = "depth", "depth", "base"


def analyse(runs: StudyRuns, base: list[StudyArm]) -> findings.Finding:
    """Return the study's finding; the root's arms stand among the others by their depth."""
    question = "From how many layers on does removing a skip collapse the model?"
    of = Variants(
        "Depth",
        question,
        "Layers",
        AXIS,
        runs,
        base,
        order=lambda arm: arm.run.n_layer,
        name=lambda arm: f"{arm.run.n_layer} layers",
    )
    return of.finding()


def main() -> None:
    """Write the study's table, figure and conclusion."""
    findings.publish(analyse(*variants.load(NAME, AXIS, BASE)))


if __name__ == "__main__":
    run_command(main)
