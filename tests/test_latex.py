import re

from resablate import cells, latex
from resablate.cells import LOSS, PERCENT, Content, Section, Table
from resablate.stats import Estimate


def table(label="Full Residual"):
    best, gap = Estimate(3, 2.5, 0.1, 2.25, 2.75), Estimate(3, -6.25, 1.0, -7.0, 5.5)
    row = {"best": Content(LOSS, best, "spread"), "gap": Content(PERCENT, gap, "both")}
    section = Section(
        "Configuration", {"best": "Best ± std", "gap": "Gap, %"}, {"a_b": (label, row)}
    )
    return Table(3, "A_title & more", [section], ["50% of a note"])


def body(text):
    return [line for line in text.splitlines() if not line.startswith("%")]


def test_each_cell_has_its_id_beside_it_and_prints_what_the_markdown_prints(tmp_path):
    ((path, text),) = latex.texts(tmp_path, table()).items()
    assert path == tmp_path / "table3.tex"
    assert "  & 2.5000 $\\pm$ 0.1000 % T3.a_b.best\n" in text
    assert "  & $-$6.2\\% [$-$7.0\\%, +5.5\\%] % T3.a_b.gap\n" in text
    assert "Configuration & Best $\\pm$ std & Gap, \\% \\\\" in text
    ids = re.findall(r" % (\S+)$", text, flags=re.MULTILINE)
    assert [i for i in ids if i.startswith("T3.")] == [cell.id for cell in table().cells()]


def test_nothing_that_a_label_holds_is_a_command_or_ends_a_line():
    text = next(
        iter(latex.texts(cells.Path(), table("\\input{x} $ # _ { } ~ ^ & 5%\nnext")).values())
    )
    (label,) = (line for line in body(text) if "input" in line)
    assert label == (
        "\\textbackslash{}input\\{x\\} \\$ \\# \\_ \\{ \\} \\textasciitilde{} \\textasciicircum{}"
        " \\& 5\\% next"
    )
    for line in body(text):
        assert line.count("{") - line.count("\\{") == line.count("}") - line.count("\\}")
