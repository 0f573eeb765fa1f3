"""The report in a real browser: drawn, interactive, silent, and showing the numbers of the run directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, find_chromium
from make_run import Spec, make_run

from fedpurin.report import write_report
from fedpurin.report.series import client_order
from fedpurin.runs.run import load_run
from fedpurin.runs.traffic import cumulative_mib

pytestmark = pytest.mark.slow  # a browser takes more than a few seconds

ALL = [
    "accuracy",
    "gain",
    "traffic",
    "reach",
    "cost",
    "bytes",
    "classes",
    "overlap",
    "groups",
    "coverage",
    "selection",
]
ACCURACY = "document.querySelector('#accuracy .plot')"
# Tick labels of one axis that run into each other, over all charts.
COLLISIONS = """(() => {
  const found = [];
  for (const axis of document.querySelectorAll('.plot .xaxislayer-above, .plot .yaxislayer-above')) {
    const texts = [...axis.querySelectorAll('.xtick text, .ytick text')];
    const boxes = texts.map((t) => [t.getBoundingClientRect(), t.textContent]);
    for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
      const [a, s] = boxes[i], [b, t] = boxes[j];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 1)
        found.push(axis.closest('section').id + ': ' + s + ' / ' + t);
    }
  }
  for (const plot of document.querySelectorAll('.plot')) {
    for (const axis of ['x', 'x2']) {
      const title = plot.querySelector(`.infolayer .${axis}title`)?.getBoundingClientRect();
      for (const text of title ? plot.querySelectorAll(`.${axis}tick text`) : []) {
        const b = text.getBoundingClientRect();
        if (Math.min(title.bottom, b.bottom) - Math.max(title.top, b.top) > 4)
          found.push(plot.closest('section').id + ': axis title beside ' + text.textContent);
      }
    }
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Chromium is missing; install the package chromium")
        pytest.skip("Chromium is missing")
    with Browser(program) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(comparison: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([comparison], tmp_path_factory.mktemp("browser") / "report.html")


@pytest.fixture
def shown(browser: Browser, page: Path) -> Browser:
    """The comparison of seven methods, freshly loaded on a desktop screen."""
    browser.scheme("light")
    browser.size(1280, 900)
    browser.open(page)
    return browser


def drawn(browser: Browser, chart: str, selector: str) -> int:
    return browser.run(f"document.querySelectorAll('#{chart} .plot {selector}').length")


def choose(browser: Browser, scope: str, control: str, value: str) -> None:
    browser.run(f"""(() => {{
        const inputs = [...document.querySelectorAll('{scope} [data-control="{control}"]')];
        const radio = inputs.find((input) => input.type === 'radio' && input.value === '{value}');
        if (radio) return radio.click();
        inputs[0].value = '{value}';
        inputs[0].dispatchEvent(new Event('change'));
    }})()""")


def line(browser: Browser, chart: str, name: str, axis: str = "y") -> np.ndarray:
    traces = f"document.querySelector('#{chart} .plot')._fullData"
    values = browser.run(f"Array.from({traces}.find((t) => t.name === '{name}').{axis})")
    return np.array(values, dtype=float)


def test_the_page_opens_without_errors_and_asks_for_nothing(shown: Browser, page: Path) -> None:
    assert shown.errors == []
    outside = [url for url in shown.requests if not url.startswith(("data:", "blob:"))]
    assert outside == [page.resolve().as_uri()]
    assert (
        shown.run(
            "performance.getEntriesByType('resource').filter((r) => !r.name.startsWith('data:')).length"
        )
        == 0
    )


def test_every_chart_is_drawn_with_its_series(shown: Browser) -> None:
    assert shown.run("[...document.querySelectorAll('section.chart')].map((s) => s.id)") == ALL
    assert shown.run("[...document.querySelectorAll('.plot')].every((p) => p.querySelector('.main-svg'))")
    assert drawn(shown, "accuracy", ".scatterlayer .trace") == 7 + 1  # a line per method, one band
    assert drawn(shown, "gain", ".scatterlayer .trace") == 6 * 2  # dots and median, without Separate itself
    assert drawn(shown, "traffic", ".scatterlayer .trace") == 7
    assert drawn(shown, "cost", ".barlayer .trace") == 4
    assert drawn(shown, "cost", ".barlayer .point") == 4 * 6 * 2  # sections, methods, directions
    assert drawn(shown, "bytes", ".barlayer .trace") == 4 * 2
    assert drawn(shown, "classes", ".heatmaplayer image") == 1
    assert drawn(shown, "overlap", ".heatmaplayer image") == 1
    assert drawn(shown, "overlap", ".scatterlayer .point") == 8  # clients
    assert drawn(shown, "groups", ".scatterlayer .trace") == 2  # FedCAC and FedPURIN
    assert drawn(shown, "coverage", ".heatmaplayer image") == 1
    assert drawn(shown, "selection", ".barlayer .trace") == 6
    assert shown.run(
        "[...document.querySelectorAll('[data-sentence]')].every((p) => p.textContent.length > 20)"
    )


def test_the_lines_are_the_runs_own_numbers(shown: Browser, comparison: Path) -> None:
    for method, label in (("fedpurin", "FedPURIN"), ("separate", "Separate"), ("fedbn", "FedBN")):
        run = load_run(comparison / method)
        assert line(shown, "accuracy", label) == pytest.approx(run.accuracy("upload").mean(axis=1), abs=1e-6)
    run = load_run(comparison / "fedpurin")
    assert line(shown, "traffic", "FedPURIN", "x") == pytest.approx(cumulative_mib(run, "upload"), rel=1e-6)


def test_the_moment_switch_changes_charts_cards_and_table(shown: Browser, comparison: Path) -> None:
    choose(shown, ".bar", "moment", "merged")
    expected = load_run(comparison / "fedpurin").accuracy("merged").mean(axis=1)
    first = float(expected[0])
    shown.until(f"Math.abs({ACCURACY}._fullData.at(-1).y[0] - {first}) < 1e-6")
    assert line(shown, "accuracy", "FedPURIN") == pytest.approx(expected, abs=1e-6)
    blocks = "[...document.querySelectorAll('#results [data-moment]')]"
    visible = f"{blocks}.filter((b) => !b.hidden).map((b) => b.dataset.moment)"
    assert shown.run(visible) == ["merged"]
    assert shown.run("document.querySelector('#gain [data-chip]').textContent") == "after merging"
    assert shown.errors == []


def test_the_link_choice_turns_traffic_into_time(shown: Browser, comparison: Path) -> None:
    choose(shown, "#traffic", "link", "10 Mbit/s")
    shown.until("document.querySelector('#traffic .plot').layout.xaxis.title.text.includes('10 Mbit/s')")
    seconds = cumulative_mib(load_run(comparison / "fedpurin"), "upload") * 2**20 * 8 / 1e7
    assert line(shown, "traffic", "FedPURIN", "x") == pytest.approx(seconds, rel=1e-5)
    assert "per client at 10 Mbit/s" in shown.run("document.querySelector('#traffic .xtitle').textContent")


def test_the_band_and_the_method_can_be_chosen(shown: Browser) -> None:
    choose(shown, "#accuracy", "band", "all")
    shown.until("document.querySelectorAll('#accuracy .scatterlayer .trace').length === 14")
    choose(shown, "#bytes", "method", "g1")
    shown.until("document.querySelector('#bytes [data-sentence]').textContent.startsWith('FedAvg')")
    assert shown.errors == []


def test_a_click_on_a_name_hides_its_line(shown: Browser) -> None:
    shown.run("document.getElementById('accuracy').scrollIntoView()")
    box = shown.run("""(() => {
        const b = document.querySelector('#accuracy .legendtoggle').getBoundingClientRect();
        return [b.left + b.width / 2, b.top + b.height / 2]; })()""")
    for kind in ("mousePressed", "mouseReleased"):
        shown.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)
    shown.until(f"{ACCURACY}._fullData.filter((t) => t.visible === 'legendonly').length === 1")
    assert drawn(shown, "accuracy", ".scatterlayer .trace") == 7


def test_hovering_a_line_tells_round_and_accuracy(shown: Browser, comparison: Path) -> None:
    shown.run(f"Plotly.Fx.hover({ACCURACY}, [{{curveNumber: 7, pointNumber: 2}}])")
    shown.until("document.querySelector('#accuracy .hoverlayer .hovertext')")
    text = shown.run("document.querySelector('#accuracy .hoverlayer').textContent")
    value = load_run(comparison / "fedpurin").accuracy("upload").mean(axis=1)[2]
    assert f"round 3: {100 * value:.1f}%" in text


def test_the_slider_shows_each_rounds_overlap_and_groups(shown: Browser, comparison: Path) -> None:
    run = load_run(comparison / "fedpurin")
    order = client_order(run)
    for place in (3, 5):
        shown.run(f"""(() => {{ const s = document.querySelector('#overlap input[type=range]');
            s.value = {place}; s.dispatchEvent(new Event('input')); }})()""")
        shown.until(f"document.querySelector('#overlap output').textContent === '{place + 1}'")
        matrix = (run.overlap(place + 1) or ([], np.zeros(0)))[1]
        expected = matrix[np.ix_(order, order)]
        np.fill_diagonal(expected, np.nan)
        z = shown.run("""[...document.querySelectorAll('#overlap .plot')][1]._fullData[0].z.map(
            (row) => Array.from(row, (v) => (Number.isNaN(v) ? null : v)))""")
        np.testing.assert_allclose(np.array(z, dtype=float), expected, atol=1e-6)
        groups = run.collaborators(place + 1) or {}
        edges = {frozenset((i, j)) for i in groups for j in groups[i]}
        assert shown.run("document.querySelector('#overlap .plot')._fullData[0].x.length") == 3 * len(edges)
    assert shown.errors == []


def test_heat_maps_keep_their_colours_when_an_overlap_is_negative(shown: Browser) -> None:
    matrix = "[...document.querySelectorAll('#overlap .plot')][1]._fullData[0]"
    assert shown.run(f"{matrix}.zmin") < 0
    assert shown.run(f"{matrix}.colorscale[0][1]") == "#eef3f8"
    shown.run("document.getElementById('theme').click()")
    shown.until(f"{matrix}.colorscale[0][1] === '#232d3b'")


def test_play_steps_through_the_rounds(shown: Browser) -> None:
    shown.run("document.querySelector('[data-play]').click()")
    shown.until("Number(document.querySelector('#overlap output').textContent) >= 3")
    shown.run("document.querySelector('[data-play]').click()")
    assert shown.errors == []


def test_dark_and_light_recolour_the_charts(shown: Browser) -> None:
    color = "getComputedStyle(document.querySelector('#accuracy .xtick text')).fill"
    page = "getComputedStyle(document.body).backgroundColor"
    light = shown.run(color), shown.run(page)
    shown.run("document.getElementById('theme').click()")
    shown.until(f"{color} !== '{light[0]}'")
    dark = shown.run(color), shown.run(page)
    assert light[1] == "rgb(244, 246, 249)"
    assert dark[1] == "rgb(18, 24, 33)"
    shown.run("document.getElementById('theme').click()")
    shown.until(f"{color} === '{light[0]}'")
    assert shown.errors == []


def test_the_page_follows_the_systems_dark_mode(browser: Browser, page: Path) -> None:
    browser.scheme("dark")
    browser.open(page)
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    browser.scheme("light")
    browser.until("document.documentElement.dataset.theme === 'light'")


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, page: Path) -> None:
    browser.size(390, 844, phone=True)
    browser.open(page)
    assert browser.run("document.documentElement.scrollWidth") == 390
    assert browser.run(
        "[...document.querySelectorAll('.main-svg')].every((s) => s.getBoundingClientRect().right <= 390)"
    )
    assert browser.run(COLLISIONS) == []
    assert browser.errors == []


CUT_LABELS = """[...document.querySelectorAll('.plot')].flatMap((plot) => {
        const frame = plot.getBoundingClientRect();
        const texts = [...plot.querySelectorAll('.annotation-text, .xtitle, .ytitle, .xtick text')];
        return texts.filter((text) => text.textContent).filter((text) => {
            const box = text.getBoundingClientRect();
            return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
        }).map((text) => plot.closest('section').id + ': ' + text.textContent);
    })"""


def test_on_a_phone_every_label_is_inside_its_picture(browser: Browser, page: Path) -> None:
    browser.size(390, 844, phone=True)
    browser.open(page)
    assert browser.run(CUT_LABELS) == []
    totals = browser.run("[...document.querySelectorAll('#cost .annotation-text')].map((t) => t.textContent)")
    assert totals == ["3.81"] * 8 + ["3.93", "2.97", "1.99", "2.97"]  # MiB, as in the table


def test_on_a_phone_long_class_names_are_inside_their_picture(browser: Browser, tmp_path: Path) -> None:
    """With four clients one of them stands at the far left of the circle, and one at the far right."""
    run = make_run(tmp_path / "run", Spec(clients=4, rounds=4, seed=3))
    told = json.loads((run / "clients.json").read_text())
    told["classes"] = [f"{k} Wellington boots" for k in range(len(told["classes"]))]
    (run / "clients.json").write_text(json.dumps(told))
    browser.size(390, 844, phone=True)
    browser.open(write_report([run], tmp_path / "report.html"))
    assert browser.run("document.querySelectorAll('#overlap .annotation-text').length") > 4
    assert browser.run(CUT_LABELS) == []


def test_layers_named_by_numbers_have_their_percentage_beside_them(browser: Browser, tmp_path: Path) -> None:
    names = ("4.weight", "2.weight", "0.weight", "1.weight", "3.bias")
    run = make_run(tmp_path / "run", Spec(clients=3, rounds=6, tau=0.5, layers=names))
    browser.size(1280, 900)
    browser.open(write_report([run], tmp_path / "report.html"))
    rows = browser.run("""(() => {
        const plot = document.querySelector('#coverage .plot');
        const place = (text) => ({ y: text.getBoundingClientRect().top, text: text.textContent });
        const notes = [...plot.querySelectorAll('.annotation-text')].map(place);
        const shares = notes.filter((note) => note.text.includes('%'));
        return [...plot.querySelectorAll('.ytick text')].map(place).map((row) => {
            shares.sort((a, b) => Math.abs(a.y - row.y) - Math.abs(b.y - row.y));
            return [row.text, parseInt(shares[0].text)];
        });
    })()""")
    # the head's layers fall to 0.5 * (0.7 + 0.3 * exp(-6 / 20)) = 46 %
    assert rows == [["4", 50], ["2", 50], ["0", 50], ["1", 46], ["3.bias", 46]]


def test_the_table_of_traffic_to_accuracy_follows_the_moment(shown: Browser) -> None:
    cell = "document.querySelector('#reach tr[data-method=fedpurin] td[data-key=last_rounds]').textContent"
    before = shown.run(cell)
    choose(shown, ".bar", "moment", "merged")
    shown.until(f"{cell} !== '{before}'")
    caption = shown.run("document.querySelector('#reach caption').textContent")
    assert "until accuracy after merging reaches a level" in caption


def test_printing_gives_pages_and_leaves_the_screen_as_it_was(shown: Browser, tmp_path: Path) -> None:
    width = shown.run(f"{ACCURACY}.querySelector('.main-svg').getBoundingClientRect().width")
    shown.pdf(tmp_path / "report.pdf")
    content = (tmp_path / "report.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert len(content) > 50_000, "charts are in it"
    shown.until(f"{ACCURACY}.querySelector('.main-svg').getBoundingClientRect().width === {width}")
    assert shown.errors == []


@pytest.mark.parametrize(
    "spec",
    [
        Spec(clients=2, rounds=2, beta=1),
        Spec(clients=20, rounds=40, beta=20, stop_after=17, torn=True, participation=0.5),
        Spec(clients=64, rounds=30, beta=20, classes=100),
        Spec(clients=300, rounds=60, beta=30),
    ],
    ids=["2 clients, 2 rounds", "half-way", "64 clients, 100 classes", "300 clients"],
)
@pytest.mark.parametrize("width", [1280, 390])
def test_at_any_size_all_is_drawn_and_no_labels_collide(
    browser: Browser, tmp_path: Path, spec: Spec, width: int
) -> None:
    page = write_report([make_run(tmp_path / "run", spec)], tmp_path / "report.html")
    browser.scheme("light")
    browser.size(width, 900, phone=width < 500)
    browser.open(page)
    assert browser.errors == []
    assert browser.run("[...document.querySelectorAll('.plot')].every((p) => p.querySelector('.main-svg'))")
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.run(COLLISIONS) == []
