"""The history that `sweep report --history` shows."""

from __future__ import annotations

from tests.support import driving
from tests.support.compared import results


def test_the_reports_history_marks_what_became_slower(tmp_path):
    files = [results(tmp_path / f"{name}.parquet", factor) for name, factor in (("a", 1), ("b", 1.001), ("c", 1.06))]
    page = tmp_path / "page.html"
    done = driving.run("report", files[2], "--history", files[1], "--history", files[0], "--out", page, "--no-figures")
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    section = text[text.index('<section id="history"') : text.index('<section id="explore"')]
    assert "2 clear changes for the worse:" in section
    assert "1B on 1: 2 -&gt; 3: -5." in section
    assert section.count('<strong class="bad">worse</strong>') == 1
    assert 'href="#history"' in text
    same = driving.run("report", files[1], "--history", files[0], "--out", page, "--no-figures")
    assert same.returncode == 0, same.stderr
    assert "No cell became worse beyond noise." in page.read_text()


def test_a_report_without_history_has_none_and_a_missing_one_changes_nothing(tmp_path):
    file, page = results(tmp_path / "a.parquet", 1), tmp_path / "page.html"
    assert driving.run("report", file, "--out", page, "--no-figures").returncode == 0
    before = page.read_text()
    assert "#history" not in before
    done = driving.run("report", file, "--out", page, "--no-figures", "--history", tmp_path / "absent.parquet")
    assert (done.returncode, done.stdout) == (2, "")
    assert "absent.parquet" in done.stderr
    assert page.read_text() == before


def test_anyway_of_a_report_needs_a_history(tmp_path):
    file, page = results(tmp_path / "a.parquet", 1), tmp_path / "page.html"
    done = driving.run("report", file, "--out", page, "--anyway")
    assert (done.returncode, done.stdout, page.exists()) == (2, "", False)
    assert "--anyway: has no effect without --history" in done.stderr
