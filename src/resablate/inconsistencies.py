"""Where the paper disagrees with itself: X1 to X17, each with the computation that shows it.

Every number is computed from the registry of reported values, from the shapes of the model, or
from the runs here; none is typed. X13 to X15 were found while the registry was made.
"""

import math
import statistics
from collections.abc import Callable, Iterable
from typing import NamedTuple

from resablate import cells
from resablate.cells import Content, Kind, Section, Table
from resablate.reported import Registry
from resablate.reproduced import Here, count_parameters
from resablate.stats import Estimate

LOSS, TIMES, STDS = Kind("nats/token", ".4f"), Kind("ratio", ".1f", "×"), Kind("std", ".1f")
COUNT, PERCENT = Kind("count", ",.0f"), Kind("%", ".1f", "%")
MILLIONS = Kind("parameters", ",d")
COLUMNS = {"computation": "Computation", "value": "Gives", "shows": "What it shows"}


class Line(NamedTuple):
    """One computation: its name in the cell's id, as text, and its result."""

    key: str
    formula: str
    value: float | int | None
    kind: Kind
    shows: str


class Inconsistency(NamedTuple):
    """What the paper says, and how to compute what speaks against it."""

    id: str
    says: str
    lines: Callable[[Registry, Here], Iterable[Line]]


def _x1(r: Registry, here: Here) -> Iterable[Line]:
    a, b = r.mean("T2.attn_only.best_val_loss"), r.mean("T3.attn_only.best_val_loss")
    yield Line("needed", f"{a:g} − {b:g}", a - b, LOSS, "what batch noise would have to explain")
    noise = [
        abs(run["final_val_loss"] - run["full_val_loss"])
        for arm in here.arms.all
        for run in arm.finished
        if arm.impl == "nanogpt" and None not in (run["final_val_loss"], run["full_val_loss"])
    ]
    formula = f"redrawn batches against whole split, largest of {len(noise)} nanoGPT runs here"
    value = max(noise, default=None)
    yield Line("noise", formula, value, LOSS, "what redrawn validation batches do")


def _x2(r: Registry, here: Here) -> Iterable[Line]:
    gain, spread = r.mean("G.runtime.best_val_loss"), r.mean("G.runtime.spread")
    low, std = r.mean("P3.attn_only.min"), r["P3.attn_only.best_val_loss"].std or 0.0
    gap = low - (gain + spread)
    shows = "g = 1 would be as low as g = 2, below every seed of Phase 3"
    yield Line("gap", f"{low:g} − ({gain:g} + {spread:g})", gap, LOSS, shows)
    yield Line("stds", f"that over {std:g}", gap / std, STDS, "standard deviations of Phase 3")


def _x3(r: Registry, here: Here) -> Iterable[Line]:
    v1, v3 = r.mean("T4.full.best_val_loss"), r.mean("V3.124M.full")
    std = r["V3.124M.full"].std or 0.0
    yield Line("difference", f"{v3:g} − {v1:g}", v3 - v1, LOSS, "v3's Full Residual is worse")
    yield Line("stds", f"that over {std:g}", (v3 - v1) / std, STDS, "of v3's standard deviations")


def _x4(r: Registry, here: Here) -> Iterable[Line]:
    names = ("T4.ffn_only.best_val_loss", "V3.124M.ffn_only", "T2.124M.ffn_only.best_val_loss")
    floors = [r.mean(name) for name in names]
    std = r["V3.124M.ffn_only"].std or 0.0
    span = max(floors) - min(floors)
    formula = f"{max(floors):g} − {min(floors):g}"
    yield Line("range", formula, span, LOSS, "three floors of one data set: data or budget differ")
    yield Line("stds", f"that over {std:g}", span / std, STDS, "of v3's standard deviations")


def _x5(r: Registry, here: Here) -> Iterable[Line]:
    worst, ffn = max(r["P124"].values or [0.0]), r.mean("V3.124M.ffn_only")
    shows = "v1's AttnOnly seed 42 lies above v3's FFNOnly"
    yield Line("overlap", f"{worst:g} − {ffn:g}", worst - ffn, LOSS, shows)


def _x6(r: Registry, here: Here) -> Iterable[Line]:
    known = [*(r["P1"].values or []), (r["P2"].values or [0.0])[0]]
    known += [r.mean("T3.attn_only.best_val_loss"), r.mean("P3.attn_only.best_val_loss")]
    formula = f"{max(known):g} − {min(known):g}"
    shows = "one seed over the paper's environments (a mean where it prints no more)"
    yield Line("range", formula, max(known) - min(known), LOSS, shows)


def _x7(r: Registry, here: Here) -> Iterable[Line]:
    first, third = r["T3.ffn_only.best_val_loss"], r["P3.ffn_only.best_val_loss"]
    difference = (third.mean or 0) - (first.mean or 0)
    formula = f"{third.mean:g} − {first.mean:g}"
    yield Line("means", formula, difference, LOSS, "the two records of the floor agree in the mean")
    quotient = (third.std or 0) / (first.std or 1)
    shows = "but Phase 3, said to be deterministic, scatters more"
    yield Line("stds", f"{third.std:g} / {first.std:g}", quotient, TIMES, shows)


def _x8(r: Registry, here: Here) -> Iterable[Line]:
    gap, std = r.mean("T3.derived.no_res_minus_ffn"), r["T3.ffn_only.best_val_loss"].std or 0.0
    shows = "standard deviations: not within noise"
    yield Line("stds", f"{gap:g} / {std:g}", gap / std, STDS, shows)


def _x9(r: Registry, here: Here) -> Iterable[Line]:
    second, first = r["P2.mean"].std or 0.0, r["T3.attn_only.best_val_loss"].std or 0.0
    quotient = second / first
    yield Line("ratio", f"{second:g} / {first:g}", quotient, TIMES, "not a hundred")
    yield Line("orders", "log10 of that", math.log10(quotient), Kind("orders", ".2f"), "not two")


def _x10(r: Registry, here: Here) -> Iterable[Line]:
    for name, printed in (("P2", "P2.mean"), ("P124", "P124.mean")):
        values, std = r[name].values or [], r[printed].std
        listed = ", ".join(f"{value:g}" for value in values)
        population = statistics.pstdev(values)
        shows = f"printed as {std:g}"
        yield Line(f"{name}_population", f"÷ n of {listed}", population, LOSS, shows)
        sample = statistics.stdev(values)
        yield Line(f"{name}_sample", f"÷ (n − 1) of {listed}", sample, LOSS, "what we report")


def _x11(r: Registry, here: Here) -> Iterable[Line]:
    full = r.mean("T4.full.best_val_loss")
    others = (r["P124"].values or [])[1:]  # without seed 1337, the recorded one
    shows = (f"printed as {r['F5.124M.range'].lo:g}%", f"printed as {r['F5.124M.range'].hi:g}%")
    for key, loss, says in zip(("low", "high"), sorted(others), shows, strict=True):
        formula = f"{loss:g} / {full:g} − 1"
        yield Line(key, formula, 100 * (loss / full - 1), PERCENT, says)


def _x12(r: Registry, here: Here) -> Iterable[Line]:
    attn, ffn = r.mean("T2.attn_only.best_val_loss"), r.mean("T2.ffn_only.best_val_loss")
    growth = r["F2.attn_only.hidden_norm_growth"].printed
    shows = f"nanoGPT, where norms grew {growth}: AttnOnly was no better than FFNOnly"
    yield Line("difference", f"{attn:g} − {ffn:g}", attn - ffn, LOSS, shows)


def _x13(r: Registry, here: Here) -> Iterable[Line]:
    same = [
        r.mean(f"T2.{config}.best_val_loss") == r.mean(f"T2.{config}.final_val_loss")
        for config in ("full", "attn_only", "ffn_only", "no_res")
    ]
    formula = "configurations of Table 2 whose best is the final evaluation"
    yield Line("paper", formula, sum(same), COUNT, f"of {len(same)}, on redrawn batches")
    flat = [
        run["best_step"] == run["steps"]
        for arm in here.arms.all
        for run in arm.finished
        if arm.impl == "nanogpt" and arm.config != "full"
    ]
    formula = "the same of the partial nanoGPT runs here"
    shows = f"of {len(flat)}: on a plateau, redrawn batches decide which evaluation is best"
    yield Line("here", formula, sum(flat) if flat else None, COUNT, shows)


def _x14(r: Registry, here: Here) -> Iterable[Line]:
    small, large = r.mean("T5.10M.residualgpt.attn_gap"), r.mean("T5.124M.residualgpt.attn_gap")
    shows = "AttnOnly's gap over Full, cited as evidence that the asymmetry decreases, grows"
    yield Line("gap", f"{large:g} / {small:g}", large / small, TIMES, shows)


def _x15(r: Registry, here: Here) -> Iterable[Line]:
    worst, floor = max(r["P124"].values or [0.0]), r.mean("T4.ffn_only.best_val_loss")
    shows = "how near the 124M seeds come to their floor; the sweep that is cited had 10M models"
    yield Line("distance", f"{floor:g} − {worst:g}", floor - worst, LOSS, shows)


def _x16(r: Registry, here: Here) -> Iterable[Line]:
    small = _shape(r, "10M", int(r.mean("D.shakespeare.vocab_size")))
    large = _shape(r, "124M", int(r.mean("D.owt.vocab_size")))
    said = {size: r[f"T1.{size}.n_params"].printed for size in ("10M", "124M")}
    for key, shape, bias, tied, size in (
        ("tied_bias", small, True, True, "10M"),
        ("tied_no_bias", small, False, True, "10M"),
        ("untied_bias", small, True, False, "10M"),
        ("large", large, True, True, "124M"),
    ):
        counted = count_parameters(*shape, bias=bias, tied=tied)
        formula = f"{size}, {'tied' if tied else 'untied'} head, {'' if bias else 'no '}biases"
        yield Line(key, formula, counted, MILLIONS, f"printed as {said[size]}")


def _shape(r: Registry, size: str, vocab: int) -> tuple[int, int, int, int]:
    names = ("n_layer", "n_embd", "block_size")
    n_layer, n_embd, block_size = (int(r[f"T1.{size}.{name}"].value or 0) for name in names)
    return n_layer, n_embd, block_size, vocab


def _x17(r: Registry, here: Here) -> Iterable[Line]:
    names = ("steps", "batch_size", "accumulation", "block_size")
    factors = [int(r[f"T1.124M.{name}"].value or 0) for name in names]
    tokens, corpus = math.prod(factors), r.mean("D.owt.train_tokens")
    formula = " × ".join(f"{factor:,}" for factor in factors)
    yield Line("tokens", formula, tokens, Kind("tokens", ",d"), "tokens of training")
    full = r["T4.full.best_val_loss"].printed
    shows = f"epochs; Full's {full} then looks too good: leakage has to be ruled out"
    yield Line("epochs", f"that over {corpus:,.0f}", tokens / corpus, TIMES, shows)


ALL = (
    Inconsistency("X1", "random validation batches are why AttnOnly shows 3.35 and not 1.58", _x1),
    Inconsistency("X2", "at g = 2 AttnOnly reached 1.54, and all gains overlap", _x2),
    Inconsistency("X3", "124M Full Residual, in v1 and in v3", _x3),
    Inconsistency("X4", "124M FFNOnly: the floor", _x4),
    Inconsistency("X5", "124M ranges do not overlap", _x5),
    Inconsistency("X6", "AttnOnly 10M, seed 1337", _x6),
    Inconsistency("X7", "FFNOnly 10M reproduces closely", _x7),
    Inconsistency("X8", "No Residual − FFNOnly is well within measurement noise", _x8),
    Inconsistency("X9", "the std of Phase 2 is two orders of magnitude larger", _x9),
    Inconsistency("X10", "standard deviations, kind not stated", _x10),
    Inconsistency("X11", "Figure 5: the gap's range over the other two 124M seeds", _x11),
    Inconsistency("X12", "hidden norms as evidence that AttnOnly recovers by routing", _x12),
    Inconsistency("X13", "best and final coincide, improving to the last checkpoint", _x13),
    Inconsistency("X14", "the asymmetry decreases at 124M (gap +50.1% vs. +6.5%)", _x14),
    Inconsistency("X15", "Figure 5: the 124M distinction is confirmed by the 8-seed sweep", _x15),
    Inconsistency("X16", "parameter counts", _x16),
    Inconsistency("X17", "124M trains for 20,000 steps", _x17),
)


def _text(words: str) -> Content:
    return cells.value(Kind("", ""), None, 0, words)


def table(registry: Registry, here: Here) -> Table:
    """Return the inconsistencies, a row a computation."""
    rows: dict[str, tuple[str, dict[str, Content]]] = {}
    for inconsistency in ALL:
        for position, line in enumerate(inconsistency.lines(registry, here)):
            head = f"{inconsistency.id}. {inconsistency.says}" if position == 0 else ""
            number = Content(line.kind, Estimate(1, line.value, None, None, None))
            contents = {"computation": _text(line.formula), "value": number}
            contents["shows"] = _text(line.shows)
            rows[f"{inconsistency.id}.{line.key}"] = (head, contents)
    notes = [
        "Every number is computed from `data/reported.yaml`, the model's shapes or the runs here.",
        cells.ROUNDING.format(name="inconsistencies"),
    ]
    section = Section("The paper says", COLUMNS, rows)
    return Table("inconsistencies", "Where the paper disagrees with itself", [section], notes)
