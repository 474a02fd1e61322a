"""Study `architecture`: Post-LN, RMSNorm, SwiGLU, RoPE and the parallel block (Q5)."""

from resablate import findings, variants
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.studyruns import Source, StudyArm, StudyRuns
from resablate.variants import Variants

NAME, AXIS, BASE = "architecture", "architecture", "pre_ln"
TITLE = "Other transformers"
QUESTION = "Do Post-LN, RMSNorm, SwiGLU, RoPE or a parallel block change the asymmetry (Q5)?"
PARALLEL = (
    "A parallel block has one skip, half of it each sublayer's: AttnOnly and FFNOnly are then the"
    " same model, and differ in nothing."
)


def analyse(runs: StudyRuns, base: list[StudyArm]) -> Finding:
    """Return the study's finding; `base` are the root's arms, which are Pre-LN."""
    return Variants(TITLE, QUESTION, "Architecture", AXIS, runs, base).finding((PARALLEL,))


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    return analyse(*variants.load(source, NAME, AXIS, BASE))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
