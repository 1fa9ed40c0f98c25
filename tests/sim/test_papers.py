"""The papers' tables, as `moonpool sim paper` reproduces them: what is claimed there must hold."""

from __future__ import annotations

import json
import math

import pytest

from moonpool.cli import run as command
from moonpool.errors import UsageError
from moonpool.sim.paper import Basis, Check, Row, Table, Verdict, reproduce
from moonpool.sim.paper.show import as_markdown, as_values, cells


def made(name: str) -> Table:
    [table] = reproduce([name])
    return table


def row(**changes: object) -> Row:
    values = {"what": "x", "ours": 1.05, "theirs": 1.0, "unit": "s", "tolerance": 0.06} | changes
    return Row(**values)


@pytest.mark.parametrize("name", ["eq2", "fig14", "deepseek", "fig8", "fig9", "fig10"])
def test_what_is_claimed_of_prefill_and_hit_rates_holds(name: str) -> None:
    table = made(name)
    assert table.agrees, "\n".join(as_markdown(table))
    assert any(row.verdict is Verdict.AGREES for row in table.rows)


def test_the_best_ratio_and_the_tbt_of_every_ratio_are_those_of_fig_15() -> None:
    table = made("fig15")
    assert table.agrees, "\n".join(as_markdown(table))
    assert sum(row.unit == "ms" and row.verdict is Verdict.AGREES for row in table.rows) == 7


def test_the_pool_serves_more_than_coupled_engines_and_most_so_where_tbt_is_strict() -> None:
    table = made("capacity")
    assert table.agrees, "\n".join(as_markdown(table))


@pytest.mark.slow
def test_baseline_rejects_most_prediction_least_and_prediction_damps_the_swing() -> None:
    table = made("rejections")
    assert table.agrees, "\n".join(as_markdown(table))
    wasted = [row.ours for row in table.rows if "wasted" in row.what]
    assert wasted[0] > wasted[1] > wasted[3], "prefill is wasted least where the future is looked at"


def test_verdicts_follow_from_difference_and_tolerance() -> None:
    assert row().verdict is Verdict.AGREES
    assert row(ours=1.07).verdict is Verdict.DIFFERS
    assert row(ours=0.93).verdict is Verdict.DIFFERS
    assert row(tolerance=None).verdict is Verdict.NO_MATCH_EXPECTED
    assert row(theirs=None).verdict is Verdict.ONLY_OURS
    assert row(unit="%", ours=50.0, theirs=47.5, tolerance=3.0).verdict is Verdict.AGREES
    assert row(unit="%", ours=50.0, theirs=46.5, tolerance=3.0).verdict is Verdict.DIFFERS


def test_a_table_agrees_only_if_all_rows_and_checks_do() -> None:
    def table(*rows: Row, holds: bool = True) -> Table:
        return Table(name="t", title="T", setup="s", rows=rows, checks=(Check("c", holds),))

    assert table(row(), row(theirs=None), row(tolerance=None)).agrees
    assert not table(row(), row(ours=2.0)).agrees
    assert not table(row(), holds=False).agrees


def test_a_row_shows_its_basis_and_its_difference() -> None:
    assert cells(row(basis=Basis.FITTED)) == ("x", "1.05 s", "1 s", "+5.0 %", "fitted", "agrees")
    assert cells(row(unit="%", ours=12.0, theirs=10.0))[3] == "+2.0 points"
    assert cells(row(theirs=None))[2:4] == ("-", "-")
    [values] = as_values(Table(name="t", title="T", setup="s", rows=(row(theirs=None),)))["rows"]
    assert values["difference"] is None
    assert not any(isinstance(value, float) and math.isnan(value) for value in values.values())


def test_an_unknown_table_is_refused_before_anything_is_made() -> None:
    with pytest.raises(UsageError, match="fig99"):
        reproduce(["eq2", "fig99"])


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["sim", "paper", "eq2", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["name"] == "eq2"
    assert table["agrees"] is True
    assert [row["verdict"] for row in table["rows"]] == ["agrees"] * 3
