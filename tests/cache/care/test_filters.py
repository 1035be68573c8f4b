"""Filters: a small grammar, exact errors, and what each field and operator chooses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vcc.cache.care.filters import FIELDS, FilterError, matching, parse_duration, parse_filter
from vcc.cache.care.items import Item

DAY = 86400.0
ITEM = Item(
    artifact="ab12cd" + "0" * 58,
    base="f" * 64,
    title="Qwen3 demo",
    size=2 * 10**9,
    build_ms=5000,
    created=1_000_000,
    used=1_000_000 + 9 * DAY,
    now=1_000_000 + 10 * DAY,
    hits=3,
    pinned=False,
    holders=0,
    shown={"model.dtype": "bf16", "target": "sm_90", "config.cuda_graph_mode": "piecewise"},
    request="[]",
    host_rules="[]",
)


def holds(text: str, item: Item = ITEM, **builder: str) -> bool:
    return parse_filter(text).holds(item, builder)


@pytest.mark.parametrize(
    "text",
    [
        *("size>1GB", "size >= 2GB", " size  <  2GiB ", "size=2GB", "size!=1", "size<=2000MB"),
        *("age>9d", "age<=10d", "age=240h", "idle<25h", "idle>=1d", "idle<2w", "idle>5min"),
        *(
            "hits=3",
            "hits>2.5",
            "pinned=no",
            "pinned!=true",
            "id=ab12cd",
            "id=AB12CD0",
            "id!=ffffff",
        ),
        *("model~qwen", "model=Qwen3 demo", "model!=demo", "dtype=bf16", "target~90"),
        *("mode=piecewise", "mode~PIECE"),
    ],
)
def test_what_holds_of_an_artifact(text):
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        *("size>2GB", "size<2GB", "age>10d", "idle>1d", "hits<3", "pinned=yes", "id=ab12ce"),
        *("model~llama", "dtype=fp32", "target=sm_80", "mode!=piecewise", "model=qwen3 demo"),
    ],
)
def test_what_does_not_hold_of_it(text):
    assert not holds(text)


def test_versions_of_the_builder_are_asked_for_only_where_a_filter_needs_them():
    asked = []

    def builder(item):
        asked.append(item)
        return {"torch": "2.13.0"}

    filters = [parse_filter("builder.torch~2.13"), parse_filter("size>1GB")]
    small = replace(ITEM, size=1)
    assert matching([ITEM, small], filters, builder) == (ITEM,)
    assert asked == [ITEM]
    assert matching([ITEM], [parse_filter("builder.torch=2.12")], builder) == ()


def test_times_from_the_future_are_no_time_ago():
    assert holds("age=0s", replace(ITEM, created=2**53))
    assert holds("idle<=0s", replace(ITEM, used=1e12))


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("size", 5, "an operator is missing"),
        ("  sise > 1GB", 3, "there is no field 'sise'"),
        ("> 1GB", 1, "there is no field ''"),
        ("size == 1GB", 6, "== is no operator of size"),
        ("pinned<yes", 7, "< is no operator of pinned"),
        ("model>x", 6, "> is no operator of model"),
        ("size >", 7, "a value is missing"),
        ("size > 1XB", 8, "'1XB' is no value of size"),
        ("size>-1", 6, "'-1' is no value of size"),
        ("size>1e400", 6, "'1e400' is no value of size"),
        ("size>nan", 6, "'nan' is no value of size"),
        ("age>30", 5, "'30' is no value of age"),
        ("age>1y", 5, "'1y' is no value of age"),
        ("hits>1e9", 6, "'1e9' is no value of hits"),
        ("pinned=maybe", 8, "'maybe' is no value of pinned"),
        ("id=ab12", 4, "'ab12' is no value of id"),
        ("id=nothex1", 4, "'nothex1' is no value of id"),
    ],
)
def test_an_error_names_the_column_and_what_would_be_right(text, column, why):
    with pytest.raises(FilterError) as caught:
        parse_filter(text)
    assert caught.value.what.endswith(f"at column {column}")
    assert caught.value.why == why
    assert caught.value.hint


@pytest.mark.parametrize("text", ["size>1GB" + " " * 1000, "model~\x1b[31m", "model=a\nb", "id=\0"])
def test_what_no_terminal_should_see_is_refused(text):
    with pytest.raises(FilterError):
        parse_filter(text)


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_a_clear_error(text):
    try:
        found = parse_filter(text)
    except FilterError:
        return
    assert found.field in FIELDS
    assert found.holds(ITEM, {}) in (True, False)


@given(
    st.sampled_from(sorted(FIELDS)),
    st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "~"]),
    st.text("0123456789.GMBdhwsyesno ab", min_size=1, max_size=12),
)
def test_not_equal_is_the_opposite_of_equal_whatever_is_compared(field, op, value):
    try:
        found = parse_filter(f"{field}{op}{value}")
    except FilterError:
        return
    if op in ("=", "!="):
        other = parse_filter(f"{field}{'!=' if op == '=' else '='}{value}")
        assert found.holds(ITEM, {}) != other.holds(ITEM, {})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1.5h", 5400), ("15min", 900), ("15m", 900), ("2 w", 1209600)],
)
def test_durations_have_a_unit(text, seconds):
    assert parse_duration(text) == seconds


def test_minutes_have_a_short_name_in_filters_and_a_wrong_unit_is_told_all():
    assert parse_filter("age>30m").value == parse_filter("age > 30min").value == 1800
    with pytest.raises(FilterError) as error:
        parse_filter("age>30x")
    assert "30m (minutes)" in error.value.hint
