import csv
import math
import re

import pytest

import fake_runs
from fake_runs import change_run, make
from resablate import beside, inconsistencies, params, paths, reported, reproduced, results
from resablate.arms import Arms
from resablate.claims import CLAIMS
from resablate.errors import UserError
from resablate.reproduced import Here, count_parameters
from resablate.results import Result, RunKey
from resablate.stages import aggregate

REGISTRY = fake_runs.REPOSITORY / reported.REGISTRY
FLOORS = {scale: {"floor": 3.35, "ngram_ladder": {"1": 3.35}} for scale in ("tiny", "gpt10m")}


@pytest.fixture(scope="module")
def registry():
    return reported.load(REGISTRY)


def run(scale, config, seed, best, impl="residualgpt", **values):
    known = dict.fromkeys(results.VALUES) | {"best_val_loss": best, "final_val_loss": best}
    return Result(RunKey(scale, impl, config, seed), "finished", known | values)


def here(*runs):
    return Here(Arms(list(runs)), FLOORS, {}, {})


def changed(tmp_path, old, new):
    """Return the registry's path in a copy with a change."""
    text = REGISTRY.read_text(encoding="utf-8")
    assert text.count(old) >= 1, old
    path = tmp_path / "reported.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def test_every_row_of_the_paper_has_its_id(registry):
    ids = set(registry.entries)
    configs = ("full", "attn_only", "ffn_only", "no_res")
    for table, quantities in {
        "T2": ("best_val_loss", "final_val_loss", "perplexity", "ratio_to_full"),
        "T3": ("best_val_loss", "perplexity"),
        "T4": ("best_val_loss", "perplexity", "ratio_to_full"),
    }.items():
        assert {f"{table}.{c}.{q}" for c in configs for q in quantities} <= ids
    rows = ("10M.nanogpt", "10M.residualgpt", "10M.phase3", "124M.nanogpt", "124M.residualgpt")
    columns = ("attn_only", "ffn_only", "attn_gap", "ffn_attn_ratio")
    assert {f"T5.{row}.{column}" for row in rows for column in columns} <= ids
    assert {"S.block", "S.configs", "S.impl.nanogpt", "S.impl.residualgpt"} <= ids
    assert {"P1", "P2", "P124", "M.mlp", "M.conv", "M.ssm", "G.weight", "F1", "F3", "F4"} <= ids
    assert (registry["P2"].center, registry["P2"].count) == (pytest.approx(2.591), 3)
    entry = registry["T3.attn_only.best_val_loss"]
    assert (entry.mean, entry.std, entry.seeds) == (1.5999, 0.0149, [1337, 42, 123])
    assert (entry.unit, entry.scale, entry.impl) == ("nats/token", "gpt10m", "residualgpt")
    assert entry.source == "v1, Table 3 and Section 6.1"


def test_the_papers_population_std_is_turned_into_a_sample_one(registry):
    entry = registry["P3.attn_only.best_val_loss"]
    assert entry.spread == pytest.approx(0.003 * math.sqrt(8 / 7))
    assert registry["T3.full.best_val_loss"].spread is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "mean: 1.5017",
            "mean: 1.5071",
            "T3.full.best_val_loss.mean: 1.5071 is not in what is printed, '1.5017'",
        ),
        ("std: 0.0149", "std: 0.149", "T3.attn_only.best_val_loss.*0.149"),
        ("mean: 1.5017", 'mean: "1.5017"', "T3.full.best_val_loss.mean: '1.5017'"),
        ("mean: 1.5017", "mean: .nan", "T3.full.best_val_loss.mean"),
        ("mean: 1.5017", "maen: 1.5017", "T3.full.best_val_loss.maen: unknown key"),
        ("quantity: final_val_loss", "quantity: loss", "T2.full.final_val_loss.quantity: 'loss'"),
        ("claim: at_floor", "claim: near", "claim: 'near' must be one of at_floor"),
        ("scale: gpt10m", "scale: 10M", "scale: '10M'"),
        ("setting: eval_seed,", "", "eval_seed.setting: must be set"),
        ("quantities:", "quantity:", "quantities: must be set"),
        ("  - title: Gain", "  - name: Gain", "title: must be set"),
        ("groups:", "groups: {", "line "),
    ],
)
def test_a_slip_in_the_registry_is_one_line_that_names_it(tmp_path, old, new, message):
    path = changed(tmp_path, old, new)
    with pytest.raises(UserError, match=message) as error:
        reported.load(path)
    assert str(error.value).startswith((f"{reported.REGISTRY}: ", f"{path}: "))
    assert "\n" not in str(error.value)


def test_a_registry_that_is_not_there_or_not_text_is_one_line(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        reported.load(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes("é".encode("latin-1"))
    with pytest.raises(UserError, match="not UTF-8"):
        reported.load(tmp_path / "latin.yaml")


def test_same_scale_is_reproduced_within_the_rule_and_differs_beyond(registry):
    entry = registry["T3.full.best_val_loss"]  # 1.5017, one seed; 1% of it is .015017
    for best, verdict in ((1.5167, "reproduced"), (1.5168, "differs")):
        found = reproduced.find(entry, here(run("gpt10m", "full", 1337, best)))
        assert (found.scale, found.verdict) == ("10M", verdict)
    # Three standard errors: theirs .0149 sqrt(3/2) over sqrt(3), ours .04 over sqrt(3).
    entry = registry["T3.attn_only.best_val_loss"]
    runs = [
        run("gpt10m", "attn_only", seed, 1.66 + d) for seed, d in ((1, -0.04), (2, 0), (3, 0.04))
    ]
    found = reproduced.find(entry, here(*runs))
    expected = 3 * math.sqrt(0.0149**2 / 2 + 0.04**2 / 3)
    assert reproduced.tolerance(entry, found.estimate) == pytest.approx(expected)
    assert expected > 1.66 - 1.5999
    assert (found.verdict, found.claim[:5]) == ("reproduced", "holds")


def test_a_number_within_the_margin_whose_claim_fails_differs(registry):
    entry = registry["P3.ffn_only.best_val_loss"]  # 3.350 with the claim that it is at the floor
    low_floor = Here(Arms([run("gpt10m", "ffn_only", 1, 3.35)]), {"gpt10m": {"floor": 3.2}}, {}, {})
    found = reproduced.find(entry, low_floor)
    assert (found.verdict, found.claim[:5]) == ("differs", "fails")


def test_a_run_at_another_scale_reproduces_no_number(registry):
    entry = registry["T3.ffn_only.best_val_loss"]
    same = [run("tiny", "ffn_only", seed, 3.3493) for seed in (1337, 42, 123)]
    found = reproduced.find(entry, here(*same))
    assert (found.scale, found.verdict) == ("tiny", "other scale")
    assert found.claim == f"holds: {CLAIMS['at_floor'].text}"
    both = here(*same, run("gpt10m", "ffn_only", 1337, 3.9))
    assert reproduced.find(entry, both).verdict == "differs"  # its own scale goes first


@pytest.mark.parametrize(
    "name", ["P1", "P2.mean", "M.mlp", "G.runtime.spread", "T4.full.perplexity"]
)
def test_what_was_not_run_here_is_said_to_be_so(registry, name):
    found = reproduced.find(registry[name], here(run("tiny", "full", 1, 2.0)))
    assert (found.verdict, found.estimate.mean) == ("not run here", None)


def test_derived_quantities_by_hand(registry):
    losses = {
        "full": (1.4, 1.6),
        "attn_only": (1.6, 1.8),
        "ffn_only": (3.3, 3.5),
        "no_res": (3.4, 3.6),
    }
    runs = [run("gpt10m", c, seed, x) for c, xs in losses.items() for seed, x in enumerate(xs)]
    expected = {
        "T3.derived.ffn_attn_ratio": 2.0,
        "T3.derived.no_res_minus_ffn": 0.1,
        "T3.derived.std_ratio": 1.0,
        "P3.gap": 1.7,
        "P3.nearest": 1.6,  # 3.4 - 1.8
        "P3.attn_only.min": 1.6,
        "P3.attn_only.max": 1.8,
        "T3.attn_only.gap_to_full": 100 * (1.7 / 1.5 - 1),
        "T3.attn_only.perplexity": math.exp(1.7),
    }
    for name, value in expected.items():
        assert reproduced.find(registry[name], here(*runs)).estimate.mean == pytest.approx(value)
    lonely = here(run("gpt10m", "full", 1, 1.5))
    for name in expected:
        assert reproduced.find(registry[name], lonely).estimate.mean is None


def test_settings_are_set_beside_params_yaml(registry, root):
    make(root, seed=[1])
    declared = params.load()
    known = reproduced.known(declared, Arms([]), FLOORS)
    assert reproduced.find(registry["T1.10M.n_embd"], known).verdict == "as reported"
    assert reproduced.find(registry["T1.10M.n_params"], known).estimate.mean == 10_770_816
    assert reproduced.find(registry["T1.124M.n_embd"], here()).verdict == "not run here"
    text = paths.PARAMS.read_text().replace("n_embd: 384", "n_embd: 96")
    paths.PARAMS.write_text(text)
    known = reproduced.known(params.load(), Arms([]), FLOORS)
    found = reproduced.find(registry["T1.10M.n_embd"], known)
    assert (found.verdict, found.text) == ("set differently", "96")
    tied = registry["S.impl.nanogpt.tie_weights"]
    assert reproduced.find(tied, known).verdict == "as reported"


def test_only_openwebtext_itself_is_the_papers_corpus(registry):
    def found(name, tokens):
        documents = {name: {"train_tokens": tokens}}
        return reproduced.find(registry["D.owt.train_tokens"], Here(Arms([]), {}, {}, documents))

    assert found("owt", 113_000_000).verdict == "not run here"  # the stand-in
    assert found("openwebtext", 112_900_000).verdict == "as reported"
    assert found("openwebtext", 975_666).verdict == "set differently"


def test_parameter_counts_are_those_of_the_committed_runs_and_of_gpt2():
    assert count_parameters(6, 96, 64, 65, bias=True, tied=True) == 683_616
    assert count_parameters(6, 96, 64, 65, bias=True, tied=False) == 689_856
    assert count_parameters(12, 768, 1024, 50257, bias=True, tied=True) == 124_439_808


def test_claims_by_hand():
    def arms(**losses):
        runs = [
            run("tiny", config, seed, x)
            for config, xs in losses.items()
            for seed, x in enumerate(xs)
        ]
        return {arm.config: arm for arm in Arms(runs).all}

    def holds(name, known, config=""):
        return CLAIMS[name].holds(known, 3.35, config)

    known = arms(full=(2.0, 2.1), attn_only=(2.5, 3.3), ffn_only=(3.35, 3.36), no_res=(3.4, 3.46))
    assert holds("below_floor", known, "full") is True
    assert holds("below_floor", known, "attn_only") is False
    assert holds("at_floor", known, "attn_only") is False
    assert holds("at_floor", known, "ffn_only") is True
    assert holds("at_floor", known, "no_res") is False  # .11 above it
    assert holds("at_floor", known, "gain") is None
    assert holds("partial_at_floor", known) is False
    assert holds("attn_beats_ffn", known) is True
    assert holds("attn_meets_ffn", known) is False
    assert holds("no_res_meets_ffn", known) is True
    assert holds("every_attn_seed_beats_ffn", known) is True
    assert holds("attn_scatters_more", known) is True
    assert holds("gradient_starves", known, "ffn_only") is None  # no gradients in these runs
    norms = [
        run("tiny", config, 1, 3.0, grad_norm_block0=gradient, hidden_norm_growth=growth)
        for config, gradient, growth in (
            ("full", 0.1, 2.0),
            ("ffn_only", 0.0009, 3.0),
            ("no_res", 0.0011, 1.0),
        )
    ]
    known = {arm.config: arm for arm in Arms(norms).all}
    assert [holds("gradient_starves", known, c) for c in ("ffn_only", "no_res")] == [True, False]
    assert [holds("grows_more_than_full", known, c) for c in ("ffn_only", "no_res")] == [
        True,
        False,
    ]


def test_inconsistencies_are_computed(registry):
    runs = [
        run("tiny", "full", 1, 2.0, "nanogpt", full_val_loss=2.03, best_step=400, steps=400),
        run("tiny", "ffn_only", 1, 3.3, "nanogpt", full_val_loss=3.31, best_step=50, steps=400),
    ]
    made = inconsistencies.table(registry, here(*runs))
    cells = {cell.id.removeprefix("inconsistencies."): cell for cell in made.cells()}
    numbers = {name.removesuffix(".value"): cell.value for name, cell in cells.items()}
    expected = {
        "X1.needed": 1.7535,
        "X1.noise": 0.03,
        "X2.gap": 0.035,
        "X3.difference": 1.314,
        "X4.range": 0.2362,
        "X5.overlap": 0.017,
        "X6.range": 0.709,
        "X7.means": 0.0007,
        "X8.stds": 0.007 / 0.0009,
        "X9.ratio": 0.544 / 0.0149,
        "X10.P2_population": 0.54341,
        "X10.P2_sample": 0.66554,
        "X10.P124_population": 1.10460,
        "X11.low": 100 * (5.967 / 3.263 - 1),
        "X12.difference": 0.0059,
        "X13.paper": 4,
        "X13.here": 0,
        "X14.gap": 50.1 / 6.5,
        "X15.distance": 0.0802,
        "X16.tied_no_bias": 10_745_088,
        "X16.untied_bias": 10_795_776,
        "X17.tokens": 2_621_440_000,
        "X17.epochs": 2_621_440_000 / 113e6,
    }
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert cells["X9.ratio.value"].printed == "36.5×"
    assert {name.partition(".")[0] for name in cells} == {f"X{i}" for i in range(1, 18)}


def test_inconsistencies_without_runs_print_a_dash(registry):
    cells = {cell.id: cell for cell in inconsistencies.table(registry, here()).cells()}
    assert cells["inconsistencies.X1.noise.value"].printed == "—"


def test_aggregate_writes_them_beside_the_papers_tables(root):
    make(root, seed=[1337, 42])
    change_run(root, RunKey("tiny", "residualgpt", "full", 1337), best_val_loss=2.2)
    change_run(root, RunKey("tiny", "residualgpt", "full", 42), best_val_loss=2.4)
    aggregate.main()
    with (paths.TABLES / "table3.csv").open(newline="", encoding="utf-8") as file:
        below = {row["id"]: row for row in csv.DictReader(file)}
    with (paths.TABLES / "reported.csv").open(newline="", encoding="utf-8") as file:
        everything = {row["id"]: row for row in csv.DictReader(file)}
    for cells, name in (
        (below, "T3.paper.full.best_val_loss"),
        (everything, "reported.T3.full.best_val_loss"),
    ):
        assert cells[f"{name}.reported"]["printed"] == "1.5017"
        assert cells[f"{name}.here"]["printed"] == "2.3000 ± 0.1414"
        assert cells[f"{name}.difference"]["printed"] == "+0.7983"
        assert cells[f"{name}.verdict"]["printed"] == "other scale"
    text = (paths.TABLES / "reported.md").read_text(encoding="utf-8")
    (total, counts) = re.search(r"- (\d+) entries: (.*)\.\n", text).groups()
    assert "4 by construction" in counts
    assert sum(int(number) for number in re.findall(r"\d+(?= [a-z])", counts)) == int(total)
    assert f"- {beside.RULE}\n" in text
