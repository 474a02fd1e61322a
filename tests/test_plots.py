"""`dvc plots show` in a real browser: everything is in the page, an empty field is no zero."""

import re
import shutil
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

import browser
from fake_runs import REPOSITORY

CURVE = "step,train_loss,val_loss,grad_norm_block0\n0,,4.2,2.5\n50,3.5,3.4,0.0\n100,3.3,3.2,1e-07\n"
POINTS = """[...document.querySelectorAll('path[aria-roledescription=point]')]
    .map((point) => point.getAttribute('aria-label'))"""


@pytest.fixture
def shown(root):
    """The page that DVC makes of the repository's own plots, for a small curve."""

    def dvc(*arguments):
        command = (sys.executable, "-m", "dvc", *arguments)
        subprocess.run(command, check=True, capture_output=True)

    browser.require()
    dvc("init", "--no-scm", "--quiet")
    shutil.copy(REPOSITORY / ".dvc/config", root / ".dvc/config")
    dvc("config", "core.no_scm", "true")
    shutil.copytree(REPOSITORY / ".dvc/plots", root / ".dvc/plots")
    yaml = YAML(typ="safe", pure=True)
    plots = {"plots": yaml.load((REPOSITORY / "dvc.yaml").read_text())["plots"]}
    with (root / "dvc.yaml").open("w") as file:
        yaml.dump(plots, file)
    (root / "plots/curves").mkdir(parents=True)
    (root / "plots/curves/trial.csv").write_text(CURVE)
    dvc("plots", "show")
    page = root / "dvc_plots/index.html"
    text = page.read_text(encoding="utf-8")
    assert text.count(", spec);") == 2  # drawn as SVG here, so that the points can be counted
    page.write_text(text.replace(", spec);", ", spec, {renderer: 'svg'});"), encoding="utf-8")
    return page


def test_plots_are_drawn_without_a_request_and_without_invented_zeros(shown, tmp_path_factory):
    with browser.Browser(tmp_path_factory.mktemp("browser")) as window:
        window.open(shown)
        for _ in range(200):
            points = window.ask(POINTS)
            if len(points) >= 7:
                break
            window.ask("new Promise((done) => setTimeout(done, 50))")
        assert window.requests == [shown.as_uri()]
        assert window.complaints == []
    losses = sorted(
        float(re.search(r"nats per token: ([\d.]+)", p)[1]) for p in points if "nats" in p
    )
    assert losses == [3.2, 3.3, 3.4, 3.5, 4.2]  # five, though the first field is empty
    norms = [p for p in points if "L2" in p]
    assert len(norms) == 2  # a log axis has no zero
