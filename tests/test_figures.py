import os
import subprocess
import sys
from itertools import pairwise

import matplotlib
import pytest
from matplotlib.figure import Figure

import fake_runs
from fake_runs import change_run, make
from resablate import paths, plotting
from resablate.errors import UserError
from resablate.results import RunKey
from resablate.stages import aggregate, figures

DRAW = figures.FIGURES
NAMES = [f"figure{n}.{suffix}" for n, _ in enumerate(DRAW, 1) for suffix in ("png", "svg")]


def drawn(axes, label):
    """Return the y values of the line with a label."""
    return [list(line.get_ydata()) for line in axes.get_lines() if line.get_label() == label]


def texts(figure):
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text)]


def test_bytes_are_equal_in_another_process_with_another_hash_seed_and_style(root):
    make(root, seed=[1337, 42])
    aggregate.main()
    figures.main()
    first = {name: (paths.PLOTS / name).read_bytes() for name in NAMES}
    (root / "matplotlibrc").write_text("font.size: 20\nlines.linewidth: 9\n")
    environment = os.environ | {
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": str(fake_runs.REPOSITORY / "src"),
    }
    command = [sys.executable, "-W", "error", "-m", "resablate.stages.figures"]
    subprocess.run(command, check=True, env=environment)
    assert {name: (paths.PLOTS / name).read_bytes() for name in NAMES} == first
    for name, content in first.items():
        assert b"<dc:date>" not in content
        assert b"Matplotlib v" not in content, name


def test_figures_show_the_runs_and_the_summary(root):
    cells = make(root, seed=[1337, 42])
    aggregate.main()
    data = figures.load()
    attn = [cell for cell in cells if cell.arm == "residualgpt-attn_only"]
    best = [run["best_val_loss"] for run in data.arm("residualgpt", "attn_only")]
    nano, residual = figures.figure1(data).axes
    assert (nano.get_title(), residual.get_title()) == ("nanoGPT", "ResidualGPT")
    a, b = (data.curves[cell.stage]["val_loss"] for cell in attn)
    assert drawn(residual, "AttnOnly") == [[(x + y) / 2 for x, y in zip(a, b, strict=True)]]
    assert drawn(figures.figure3(data).axes[1], "AttnOnly") == [best]
    by_seed = figures.figure4(data).axes[0]
    mean = data.summary["residualgpt"]["attn_only"]["best_val_loss"]
    assert drawn(by_seed, f"AttnOnly mean {mean:.3f}") == [[mean, mean]]
    assert drawn(by_seed, "unigram floor 3.347") == [[fake_runs.FLOOR] * 2]


def test_zeros_stand_at_a_marked_place_below_every_positive_value():
    (ax,) = plotting.figure(1, 4, 3)[1]
    zero = plotting.log_axis_with_zero(ax, [5.0, 3e-8, 0.0])
    assert zero == 1e-9
    labels = dict(zip(ax.get_yticks(), (t.get_text() for t in ax.get_yticklabels()), strict=True))
    assert labels[zero] == "0"
    assert [label for label in labels.values() if label == "0"] == ["0"]
    low, high = ax.get_ylim()
    assert low < zero < 3e-8
    assert high > 5.0


def test_only_zeros_still_make_an_axis():
    (ax,) = plotting.figure(1, 4, 3)[1]
    assert 0 < plotting.log_axis_with_zero(ax, [0.0, 0.0]) < ax.get_ylim()[1]


def test_a_diverged_run_is_written_in_the_figure_and_counted_in_the_title(root):
    make(root, seed=[1337, 42])
    change_run(root, RunKey("tiny", "residualgpt", "attn_only", 42), status="diverged")
    aggregate.main()
    data = figures.load()
    made = figures.figure4(data)
    assert "diverged" in texts(made)
    assert "AttnOnly\nn=1 of 2" in texts(made)
    assert made.get_suptitle() == "ResidualGPT, scale tiny, n = 2 seeds, 1 of 16 runs diverged"


@pytest.mark.parametrize(
    "grid",
    [
        {"seed": [5], "impl": ["residualgpt"], "config": ["ffn_only"]},
        {"seed": [1, 2], "impl": ["nanogpt"], "config": ["full", "no_res"]},
        {"seed": [3], "scale": ["tiny_owt", "tiny"]},
    ],
)
def test_any_part_of_the_grid_can_be_drawn(root, grid):
    make(root, **grid)
    aggregate.main()
    data = figures.load()
    assert data.scale == grid.get("scale", ["tiny"])[0]
    for draw in DRAW:
        figure = draw(data)
        assert isinstance(figure, Figure)
        figure.draw_without_rendering()  # layout: a warning is an error here


def test_rungs_that_are_close_get_labels_that_are_apart():
    figure, (ax,) = plotting.figure(1, 6, 4)
    ax.set_ylim(1.4, 4.2)
    plotting.reference(ax, {"1": 3.347, "5": 1.639, "6": 1.600, "9": 1.2}, named=True)
    figure.draw_without_rendering()
    boxes = sorted((text.get_window_extent() for text in ax.texts), key=lambda box: box.y0)
    assert len(boxes) == 3  # the last rung lies outside
    assert all(a.y1 <= b.y0 for a, b in pairwise(boxes))


def test_a_legend_is_as_wide_as_the_figure_at_most():
    made, (ax,) = plotting.figure(1, 7.0, 3.0)
    names = [f"a label of some length, {i}" for i in range(5)]
    for name in names:
        ax.plot([0, 1], [0, 1], label=name)
    plotting.legend_below(made, [ax])
    (legend,) = made.legends
    assert [text.get_text() for text in legend.get_texts()] == names
    assert legend.get_window_extent().width <= made.bbox.width


def test_no_two_configurations_look_alike_without_colour():
    looks = {(str(look["linestyle"]), look["marker"]) for look in plotting.LINES.values()}
    assert len(looks) == len(plotting.LINES) == 4


def test_a_summary_of_another_grid_is_refused(root):
    make(root, seed=[1])
    aggregate.main()
    paths.SUMMARY.write_text("{}")
    with pytest.raises(UserError, match="do not belong together"):
        figures.load()
