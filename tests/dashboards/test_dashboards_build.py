"""The committed boards and rules are what the source makes, byte for byte."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("grafana_foundation_sdk", reason="Grafana's SDK needs Python 3.11")

with warnings.catch_warnings():
    # The SDK prefers the schema v2, which Grafana 11 cannot read.
    warnings.filterwarnings("ignore", "Prefer using dashboardv2", DeprecationWarning)
    from dashboards import boards, build


def test_generated_files_are_what_the_source_makes():
    """Nothing in generated/ is stale, missing or left over."""
    assert [] == build.drift()


def test_the_check_names_each_file_that_drifted(tmp_path):
    """A changed, a missing and a left-over file are all found."""
    build.write(tmp_path)
    (tmp_path / "rules.yaml").write_text("changed")
    (tmp_path / "alerts.yaml").unlink()
    (tmp_path / "boards" / "old.json").write_text("{}")

    assert ["alerts.yaml", "boards/old.json", "rules.yaml"] == build.drift(tmp_path)


def test_writing_again_mends_what_drifted(tmp_path):
    """Writing brings a folder up to date and removes what is no longer made."""
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "old.json").write_text("{}")

    build.write(tmp_path)

    assert [] == build.drift(tmp_path)


def test_the_command_fails_on_drift_and_names_the_file(tmp_path, monkeypatch, capsys):
    """`--check` exits with 1 and says which file to build again."""
    monkeypatch.setattr(build, "drift", lambda: ["rules.yaml"])

    assert 1 == build.main(["--check"])
    assert "rules.yaml is stale" in capsys.readouterr().err


def test_the_command_is_content_without_drift(monkeypatch):
    """`--check` exits with 0 when nothing would change."""
    monkeypatch.setattr(build, "drift", list)

    assert 0 == build.main(["--check"])


def test_the_command_writes_when_nothing_else_is_asked(monkeypatch):
    """Without arguments the files are written."""
    written = []
    monkeypatch.setattr(build, "write", lambda: written.append(True))

    assert 0 == build.main([])
    assert [True] == written


def test_the_command_refuses_what_it_does_not_know(capsys):
    """Any other argument is an error that says how it is used."""
    assert 2 == build.main(["--force"])
    assert "--check" in capsys.readouterr().err


def test_each_board_has_a_file_of_its_own():
    """No two boards share a uid."""
    uids = [board.uid for board in boards.ALL]

    assert sorted(set(uids)) == sorted(uids)
