"""Study `architecture`: Post-LN, RMSNorm, SwiGLU, RoPE and the parallel block (Q5)."""

from resablate import findings, variants
from resablate.errors import run_command
from resablate.studyruns import StudyArm, StudyRuns
from resablate.variants import Variants

NAME, AXIS, BASE = "architecture", "architecture", "pre_ln"
PARALLEL = (
    "A parallel block has one skip, half of it each sublayer's: AttnOnly and FFNOnly are then the"
    " same model, and differ in nothing."
)


def analyse(runs: StudyRuns, base: list[StudyArm]) -> findings.Finding:
    """Return the study's finding; `base` are the root's arms, which are Pre-LN."""
    question = "Do Post-LN, RMSNorm, SwiGLU, RoPE or a parallel block change the asymmetry (Q5)?"
    return Variants("Other transformers", question, "Architecture", AXIS, runs, base).finding(
        (PARALLEL,)
    )


def main() -> None:
    """Write the study's table, figure and conclusion."""
    findings.publish(analyse(*variants.load(NAME, AXIS, BASE)))


if __name__ == "__main__":
    run_command(main)
