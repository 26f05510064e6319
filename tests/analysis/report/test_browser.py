"""The report in a real browser: nothing loaded, no console errors, sort, filter, hover, theme and keyboard work."""

import pandas as pd
import pytest

from analysis.report import About, build
from tests.support.browser import opened
from tests.support.made_records import made_grid

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'\"&{{ 7*7 }}"
ABOUT = About(title=f"made {HOSTILE}", sources=[HOSTILE], written="today", grid=f"name: {HOSTILE}")


expect = pytest.importorskip("playwright.sync_api").expect


def records() -> pd.DataFrame:
    """Two models on three node counts; failures contain hostile text in every text field."""
    rows = made_grid(2, 3, per_cell=20)
    rows["run_id"] += "-001b"  # a word such as 1B must not find the hex digits of other models' runs
    worse = made_grid(1, 1, per_cell=30, failing=False).assign(
        run_id=[f"f{i}{HOSTILE}" for i in range(30)],
        model=HOSTILE,
        outcome="nccl_error",
        message=HOSTILE,
        evidence=HOSTILE,
        advice=HOSTILE,
        versions_json=f'{{"torch": "{HOSTILE[:20]}"}}',
        total_s=60.0,
        tokens_per_second_per_gpu=None,
        notes=[[HOSTILE]] * 30,
    )
    return pd.concat([rows, worse.assign(mfu=None)], ignore_index=True)


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(build(records(), None, ABOUT))
    with opened(browser, file, viewport={"width": 1200, "height": 900}, color_scheme="light") as (shown, events):
        yield shown, events


def written(browser, tmp_path, page, width, height):
    """The page in a window of that size."""
    file = tmp_path / "report.html"
    file.write_text(page)
    return opened(browser, file, viewport={"width": width, "height": height})


def column(page, name):
    """The texts of one column of the table of attempts."""
    return page.locator(f"#attempts tbody td.{name}").all_inner_texts()


def test_it_loads_nothing_logs_no_error_and_runs_nothing_of_a_log(page):
    shown, events = page
    assert shown.title().startswith("made </script>"), "the hostile text is text"
    assert shown.locator("#failures pre").first.inner_text() == HOSTILE
    assert "49" not in shown.locator("#failures").inner_text().replace(HOSTILE, "")
    assert events.console == []
    assert events.requests == []


def test_axe_finds_nothing_serious_in_light_and_dark(page):
    from axe_playwright_python.sync_playwright import Axe

    shown, _ = page
    shown.locator("#filter").fill("tp=4 nodes=4")  # a few rows represent all
    expect(shown.locator("#attempts tbody tr")).not_to_have_count(100)
    for scheme, options in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
        shown.emulate_media(color_scheme=scheme)
        found = Axe().run(shown, options=options).response
        assert len(found["passes"]) > (15 if scheme == "light" else 0)
        assert [v for v in found["violations"] if v["impact"] in ("serious", "critical")] == []
    shown.emulate_media(color_scheme="light")
    shown.locator("#clear").click()


def test_sort(page):
    shown, _ = page
    head = shown.locator("th.tokens_per_second_per_gpu")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    first = column(shown, "tokens_per_second_per_gpu")
    assert float(first[0].replace(",", "")) == records()["tokens_per_second_per_gpu"].max()
    assert first == sorted(first, key=lambda text: -float(text.replace(",", "") if text != "–" else "-1"))
    shown.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending", "the heading keeps the focus, and Enter sorts the other way"
    assert float(column(shown, "tokens_per_second_per_gpu")[0].replace(",", "")) < float(first[0].replace(",", ""))


def test_filter(page):
    shown, _ = page
    box = shown.locator("#filter")
    box.fill("1B nodes>=2 tp=4 outcome=ok")
    want = records().query("model == '1B' and nodes >= 2 and tp == 4 and outcome == 'ok'")
    assert 0 < len(want) < 100
    expect(shown.locator("#attempts tbody tr")).to_have_count(len(want))
    assert set(column(shown, "tp")) == {"4"}
    assert shown.locator("#said").inner_text().startswith(f"{len(want)} of {len(records())}")
    assert shown.locator("#plot .p").count() == len(want)
    box.fill("color=red")
    expect(shown.locator("#attempts tbody tr")).to_have_count(0)
    assert "no column color" in shown.locator("#said").inner_text()
    shown.locator("#clear").click()
    expect(shown.locator("#attempts tbody tr")).to_have_count(100)
    shown.locator("#after").click()
    assert shown.locator("#page").inner_text() == "page 2 of 2"


def test_hover_and_keys_name_a_point(page):
    shown, _ = page
    plot = shown.locator("#plot")
    plot.scroll_into_view_if_needed()
    mark = shown.locator("#plot .p").first.bounding_box()
    shown.mouse.move(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
    tip = shown.locator("#tip").inner_text()
    assert "memory GiB" in tip
    assert "MFU %" in tip
    shown.mouse.move(0, 0)
    assert shown.locator("#tip").count() == 0
    plot.focus()
    shown.keyboard.press("ArrowRight")
    first = shown.locator("#point").inner_text()
    shown.keyboard.press("ArrowRight")
    assert first
    assert shown.locator("#point").inner_text() != first
    shown.keyboard.press("Escape")
    assert shown.locator("#tip").count() == 0


def test_theme(page):
    shown, _ = page
    background = "getComputedStyle(document.body).backgroundColor"
    light = shown.evaluate(background)
    shown.locator("#theme").click()
    assert shown.evaluate(background) == light
    shown.locator("#theme").click()
    assert shown.evaluate(background) != light
    shown.emulate_media(media="print")
    assert shown.evaluate(background) == light, "paper is white"
    assert shown.locator("#attempts thead").is_visible()
    assert not shown.locator("#filter").is_visible()
    shown.emulate_media(media="screen")
    shown.locator("#theme").click()
    assert shown.evaluate(background) == light


def test_a_figure_is_on_a_light_card_in_both_themes(browser, tmp_path):
    from analysis.figures import draw

    rows = made_grid(1, 2)
    page = build(rows, None, ABOUT, pictures=[draw("scaling", rows)])
    with written(browser, tmp_path, page, 1200, 900) as (shown, events):
        for scheme in ("light", "dark"):
            shown.emulate_media(color_scheme=scheme)
            card = shown.locator("#figures img").evaluate("one => getComputedStyle(one).backgroundColor")
            assert card == "rgb(255, 255, 255)"
        assert events.console == []


def test_hover_shows_the_whole_layout_also_what_all_rows_share(browser, tmp_path):
    rows = made_grid(1, 1, failing=False).assign(cp=2, zero=1, pp_schedule="1f1b", recompute="selective")
    with written(browser, tmp_path, build(rows, None, ABOUT), 1200, 900) as (shown, _):
        title = shown.locator(".heat td a").first.get_attribute("title")
        best = rows.loc[rows["tokens_per_second_per_gpu"].idxmax()]
        names = ("dp", "tp", "pp", "cp", "zero", "micro_batch_size", "grad_accum", "recompute", "pp_schedule")
        assert [f"{name}={best[name]}" for name in names if f"{name}={best[name]}" not in title.split()] == []
        shown.locator("#plot").focus()
        shown.keyboard.press("ArrowRight")
        tip = shown.locator("#tip").inner_text()
        wanted = ("DP ", "TP ", "CP 2", "ZeRO 1", "MBS ", "GAS ", "recompute selective", "schedule 1f1b", "sequence ")
        assert [part for part in (*wanted, "batch ") if part not in tip] == []


def test_models_are_sorted_by_size_everywhere(browser, tmp_path):
    """By parameters, not by the alphabet nor by the number in the name."""
    sizes = {"SmolLM-360M": 3.6e8, "1B": 1e9, "Aya-8B": 8e9, "70B": 7e10}
    one = made_grid(1, 1, failing=False)
    rows = pd.concat([one.assign(model=n, parameters_total=s) for n, s in reversed(sizes.items())], ignore_index=True)
    with written(browser, tmp_path, build(rows, None, ABOUT), 1200, 900) as (shown, _):
        assert shown.locator(".heat tbody th").all_inner_texts() == list(sizes)
        assert shown.locator(".winners tbody th").all_inner_texts() == list(sizes)
        assert shown.locator("#model option").all_inner_texts() == ["all", *sizes]
        shown.locator("th.model button").click()
        assert list(dict.fromkeys(column(shown, "model"))) == list(sizes)
        shown.locator("#colour").select_option("model")
        assert shown.locator("#legend li").all_inner_texts() == [f"model {name}" for name in sizes]


def test_a_cell_links_to_its_flags(page):
    shown, _ = page
    shown.locator(".heat a").first.press("Enter")
    opened_row = shown.locator(".winners tr:target + tr")
    expect(opened_row.locator("pre").first).to_be_visible()
    assert "--dp=" in opened_row.locator("pre").first.inner_text()


def test_a_narrow_window_scrolls_no_further_than_its_text(browser, tmp_path):
    page = build(made_grid(3, 8), None, About(title="narrow", sources=["x" * 300], written="today"))
    with written(browser, tmp_path, page, 360, 700) as (shown, events):
        assert shown.evaluate("document.documentElement.scrollWidth") <= 360
        hint = shown.locator("#answer .more")
        expect(hint).to_be_visible()
        shown.set_viewport_size({"width": 2400, "height": 700})
        expect(hint).to_be_hidden()
        assert events.console == []


def test_on_a_phone_each_best_configuration_is_read_without_scrolling(browser, tmp_path):
    """Nine columns side by side hid the speed, and left as much blank as the sentences beyond the edge took."""
    page = build(made_grid(2, 2), None, About(title="phone", sources=[], written="today"))
    with written(browser, tmp_path, page, 420, 900) as (shown, _):
        assert shown.locator("#sure .scroll").evaluate("e => e.scrollWidth <= e.clientWidth")
        first = shown.locator(".winners tbody tr").first
        assert all(first.locator("td").nth(at).is_visible() for at in range(8))
        assert first.locator("td").first.evaluate("e => getComputedStyle(e, '::before').content").startswith('"nodes')
