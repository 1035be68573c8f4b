"""`--shape` texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.errors import UsageError
from vcc.engine.models.checkpoint_forward import declared_shapes
from vcc.engine.models.shapes import Dim, InputShape, parse_shapes

dims = st.tuples(st.integers(1, 9999), st.integers(0, 9999)).map(lambda d: Dim(d[0], sum(d)))
shapes = st.builds(
    InputShape,
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True),
    st.lists(dims, min_size=1, max_size=4).map(tuple),
    st.sampled_from([None, "int64", "bfloat16"]),
)


@given(shapes)
def test_parse_is_the_inverse_of_str(shape: InputShape) -> None:
    assert InputShape.parse(str(shape)) == shape


def test_fixed_and_ranged_dimensions() -> None:
    shape = InputShape.parse("x=1-8x128:int64")
    assert shape == InputShape("x", (Dim(1, 8), Dim(128, 128)), "int64")
    assert [dim.dynamic for dim in shape.dims] == [True, False]


def test_a_range_may_say_which_size_a_trace_sees() -> None:
    shape = InputShape.parse("x=T@1-64~12x8")
    assert shape.dims[0] == Dim(1, 64, "T", 12)
    assert str(shape) == "x=T@1-64~12x8"


@pytest.mark.parametrize(
    "text",
    [
        *("x=1-8~", "x=1-8~9", "x=2-8~1", "x=8~4", "x=~4"),
        *("", "x", "x=", "=8", "x=8x", "x=x8", "x=8xx8", "x=0", "x=0-8", "x=8-4", "x=8x0"),
        *("x=-8", "x=8-", "x=1-2-3", "x=8:float31", "x=8:", "1x=8", "x=99999999999", "x=8 "),
    ],
)
def test_a_malformed_shape_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        InputShape.parse(text)
    assert "name=8x128" in caught.value.hint


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="x twice"):
        parse_shapes(["x=8", "y=8", "x=4"])


def test_dimensions_of_one_name_have_one_range() -> None:
    first, second = parse_shapes(["x=T@1-8x4", "y=2xT@1-8:int64"])
    assert first.dims[0] == second.dims[1] == Dim(1, 8, "T")
    assert (str(first), str(second)) == ("x=T@1-8x4", "y=2xT@1-8:int64")
    with pytest.raises(UsageError, match="dimension T has two ranges"):
        parse_shapes(["x=T@1-8x4", "y=T@1-9"])


@pytest.mark.parametrize(
    ("short", "name"), [("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")]
)
def test_a_dtype_may_be_written_as_for_dtype(short: str, name: str) -> None:
    assert InputShape.parse(f"x=4:{short}") == InputShape.parse(f"x=4:{name}")
    assert str(InputShape.parse(f"x=4:{short}")) == f"x=4:{name}"


def test_ids_and_masks_of_a_text_model_are_whole_numbers() -> None:
    texts = ["input_ids=4x16", "attention_mask=4x16:fp32", "pixel_values=1x3x8x8"]
    assert [one.dtype for one in declared_shapes(texts)] == ["int64", "float32", None]
