"""The page in a real Chromium: lineage by mouse, keyboard and address, no request, dark, paper."""

import pytest

import browser
from resablate import paths, report
from resablate.report import views
from servers import wait_until
from test_report import HOSTILE, built

CELL = "T3.attn_only.best_val_loss"
LINK = f'a[data-cell="{CELL}"]'
OPEN = "!document.querySelector('#lineage').hidden"
BODY = "getComputedStyle(document.body)"


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    browser.require()
    with browser.Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    browser.require()
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        built(folder, patch, seed=[1337])
        yield folder / report.path("main")


@pytest.fixture
def page(window, made):
    """The page, just opened on a light screen, and nothing asked for but the page."""
    window.requests.clear()
    window.complaints.clear()
    window.media()
    window.open(made)
    yield window
    asked = {address for address in window.requests if not address.startswith("data:")}
    assert {address.partition("#")[0] for address in asked} == {made.as_uri()}
    assert window.complaints == []  # no script failed, the page's own policy stopped nothing


def becomes(page, expression, expected=True):
    """Wait for what a press or a click brings about: how soon is the browser's affair."""
    wait_until(lambda: page.ask(expression) == expected, f"{expression} is {expected}")


def focus(page):
    return page.ask("document.activeElement.dataset?.cell ?? document.activeElement.id")


def test_an_address_opens_the_lineage_of_its_cell_and_marks_it(page, made):
    page.open(made, f"#{CELL}")
    assert page.ask(OPEN)
    assert page.ask("document.querySelector(':target').id") == CELL
    assert page.ask("document.querySelector('#lineage-head').textContent") == CELL
    assert focus(page) == "lineage"
    shown = page.ask("document.querySelector('#lineage').innerText")
    for words in ("4 decimals", "train@tiny-residualgpt-full-1337", "1337", "resablate trace T3."):
        assert words in shown
    marked = "getComputedStyle(document.querySelector(':target')).backgroundColor"
    assert page.ask(marked) != "rgba(0, 0, 0, 0)"


def test_mouse_hover_summarises_and_a_click_opens(page):
    page.move(LINK)
    tip = page.ask("document.querySelector('#tip').innerText")
    assert tip.startswith(f"{CELL}: 2.5 nats/token. 1 run, seeds 1337.")
    page.click(LINK)
    becomes(page, OPEN)
    becomes(page, "location.hash", f"#{CELL}")
    page.click("#close")
    becomes(page, OPEN, False)
    assert focus(page) == CELL


def test_keyboard_reaches_each_number_opens_and_leaves_it(page):
    page.ask("document.querySelector('#table-table3 .scroll').focus()")
    page.press("Tab")
    assert focus(page) == "T3.full.best_val_loss"
    outline = page.ask("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.press("ArrowDown")
    assert focus(page) == CELL
    page.press("ArrowRight")
    page.press("ArrowLeft")
    page.press("Enter")
    wait_until(lambda: focus(page) == "lineage", "the lineage has the focus")
    becomes(page, OPEN)
    page.press("Escape")
    wait_until(lambda: focus(page) == CELL, "the cell has the focus again")
    assert not page.ask(OPEN)
    page.press("Tab")  # one stop a table: out of this one
    assert not page.ask("document.activeElement.closest('#table-table3 table')?.contains("
                        f"document.querySelector('{LINK}'))")  # fmt: skip


def test_hovering_a_curve_names_its_run_and_so_do_the_arrow_keys(page):
    read = "document.querySelector('.panel output').textContent"
    first = page.ask("({...document.querySelector('.panel polyline').dataset})")
    page.ask("document.querySelector('.panel svg').focus()")
    page.press("ArrowRight")
    last = (first["values"].split()[-1], first["steps"].split()[-1])
    assert page.ask(read) == f"{first['label']}: {last[0]} at update {last[1]}"
    page.press("ArrowLeft")
    assert page.ask(read).endswith(f"at update {first['steps'].split()[-2]}")
    page.press("ArrowDown")
    assert first["label"] not in page.ask(read)
    page.press("Escape")
    assert page.ask(read).strip() == ""
    page.move(".panel svg", 0.13, 0.13)  # where every curve begins
    assert page.ask(read).endswith("at update 0")


def test_dark_narrow_and_paper(page, tmp_path):
    light = page.ask(f"{BODY}.backgroundColor")
    page.media(scheme="dark")
    assert light == "rgb(255, 255, 255)"
    assert page.ask(f"{BODY}.backgroundColor") == "rgb(21, 23, 26)"
    page.media(width=400)
    assert page.ask("document.documentElement.scrollWidth") <= 400
    page.media("print", width=700)
    assert page.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.ask("document.documentElement.scrollWidth") <= 700
    assert page.print().startswith(b"%PDF-")


def test_hostile_parameters_are_text_in_the_lineage(page):
    page.click(LINK)
    page.ask("document.querySelectorAll('#lineage details').forEach((d) => { d.open = true; })")
    assert page.ask("document.querySelector('#lineage').textContent").count("onerror") >= 2
    assert page.ask("document.querySelectorAll('#lineage img, #lineage script').length") == 0
    assert HOSTILE in page.ask("document.querySelector('#lineage dl:last-of-type dd').textContent")


def test_every_number_of_the_tables_leads_to_its_lineage(page, made):
    links = page.ask("[...document.querySelectorAll('a[data-cell]')].map((a) => a.dataset.cell)")
    assert links == views.numbers(views.tables(made.parents[1] / paths.TABLES))
