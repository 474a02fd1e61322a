"""Study `phases`: the paper's Phases 1 to 3 as parameter sets (Section 6, P1 to P3).

Phase 1 leaves the kernels to PyTorch, Phase 2 forces deterministic ones, Phase 3 here has the
portable numerics of the root pipeline.
"""

from collections.abc import Sequence
from itertools import combinations

from matplotlib.figure import Figure

from resablate import cells, findings, labels, plotting, reported, studytables, wording
from resablate.cells import LOSS, RUNS, Section
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.stats import shared
from resablate.studyruns import Source, StudyArm, StudyRuns

NAME = "phases"
TITLE = "The paper's phases as parameter sets"
QUESTION = "Does the choice of kernels move AttnOnly's result, as the paper's phases did (Q3)?"
SAME = ("best_val_loss", "final_val_loss", "full_val_loss")


def same_bits(a: StudyArm, b: StudyArm) -> tuple[int, int]:
    """Return for how many seeds all losses are equal to the last bit, and of how many."""
    pairs = [(a.by_seed(name), b.by_seed(name)) for name in SAME]
    seeds = shared(*pairs[0])
    return sum(all(x[seed] == y[seed] for x, y in pairs) for seed in seeds), len(seeds)


def moves(a: StudyArm, b: StudyArm) -> list[float]:
    """Return by how much the best loss differs between two phases, for each seed that both have."""
    of_a, of_b = a.by_seed("best_val_loss"), b.by_seed("best_val_loss")
    return [abs(of_a[seed] - of_b[seed]) for seed in shared(of_a, of_b)]


def pairs_section(arms: Sequence[StudyArm]) -> Section:
    """Return one row a pair of phases."""
    columns = {"same": "Seeds with the same bits", "n": "n", "move": "Largest change at one seed"}
    rows = {}
    for a, b in combinations(arms, 2):
        equal, n = same_bits(a, b)
        contents = {
            "same": cells.value(RUNS, equal, n),
            "n": cells.value(RUNS, n, n),
            "move": cells.value(LOSS, max(moves(a, b), default=None), n),
        }
        rows[f"{a.name}.{b.name}"] = (f"{_label(a)} and {_label(b)}", contents)
    return Section("Phases", columns, rows)


def conclude(runs: StudyRuns) -> tuple[str, str]:
    """Return how far the phases differ here, and what of the paper's scatter that leaves."""
    parts, largest = [], 0.0
    for a, b in combinations(runs.arms, 2):
        equal, n = same_bits(a, b)
        largest = max([largest, *moves(a, b)])
        parts.append(f"{_label(a)} and {_label(b)} for {equal} of {n} seeds")
    spreads = [f"{_label(arm)} {wording.loss(arm.estimate('best_val_loss'))}" for arm in runs.arms]
    found = (
        f"{wording.setting(runs.scale, runs.arms)}, losses are equal to the last bit between"
        f" {wording.listed(parts)}; the best loss at one seed moves by at most {largest:.4f} nats"
        f" between them ({wording.listed(spreads)})."
    )
    phase1 = reported.load()["P1"].values
    spread = max(phase1) - min(phase1)
    reached = "reached or passed" if largest >= spread else "not reached"
    return found, (
        f"The range of {spread:.2f} nats that the paper's Phase 1 shows at one seed was {reached}"
        " by any change of kernels on this CPU; the paper's GPU kernels themselves were not run."
    )


def draw(runs: StudyRuns) -> Figure:
    """Return each seed's best loss across the phases."""
    figure, (ax,) = plotting.figure(1, 6.0, 3.8)
    for i, seed in enumerate(runs.seeds):
        points = [(x, a.by_seed("best_val_loss").get(seed)) for x, a in enumerate(runs.arms)]
        shown = [(x, loss) for x, loss in points if loss is not None]
        look = {"marker": "osv^D"[i % 5], "color": f"C{i}", "linewidth": 1}
        ax.plot(*zip(*shown, strict=True), label=f"seed {seed}", **look) if shown else None
    plotting.categories(ax, [_detailed(arm) for arm in runs.arms])
    ax.set_ylabel("best validation loss, nats per token")
    figure.suptitle(f"{TITLE}, AttnOnly, scale {labels.scale(runs.scale)}", fontsize=10.5)
    plotting.legend_below(figure, [ax])
    return figure


def analyse(runs: StudyRuns) -> Finding:
    """Return the study's finding; each phase is compared with the last."""
    last = runs.arms[-1]
    compared = studytables.compare_all(runs.arms[:-1], lambda arm: last)
    of_arms = studytables.arms_section(runs, runs.arms, _label, compared, _label(last))
    phase1 = reported.load()["P1"]
    note = (
        f"The paper's Phase 1, AttnOnly with seed 1337 three times: {phase1.printed}, a"
        f" sample standard deviation of {phase1.spread:.3f}. Same bits: best, final and whole-split"
        " loss are equal to the last bit."
    )
    sections = [of_arms, pairs_section(runs.arms)]
    table = studytables.table(runs, TITLE, sections, runs.arms, compared, [note])
    found, not_found = conclude(runs)
    figures = {NAME: lambda: draw(runs)}
    return Finding(runs, TITLE, QUESTION, found, not_found, table, figures, runs.arms)


def _label(arm: StudyArm) -> str:
    return labels.level(arm.levels["phase"])


def _detailed(arm: StudyArm) -> str:
    return f"{_label(arm)}\n{arm.run.kernels} kernels,\n{arm.run.numerics} numerics"


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    return analyse(source.study(NAME))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
