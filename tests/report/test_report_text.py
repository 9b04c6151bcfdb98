import pytest

from gapscope.report.markdown import number
from gapscope.report.text import NO_LABEL, drawable, one_line, plot_label, shorten, width, without_markup, without_zero_sign


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two\nlines\tand\r\n\x1b[31mred\x00", "two lines and [31mred"),
        ("left \u202eright\u202c \u200bzero", "left right zero"),
        ("e\u0301", "\u00e9"),
        ("Z" + "\u0351" * 30 + "algo", "Z\u0351\u0351algo"),
        ("  spaces   inside ", "spaces inside"),
        ("\ud800lone", "lone"),
    ],
)
def test_one_line_has_no_hidden_characters(text: str, expected: str) -> None:
    assert one_line(text) == expected


def test_width_counts_wide_characters_twice_and_marks_not_at_all() -> None:
    assert width("ab") == 2
    assert width("日本") == 4
    assert width("a\u0301") == 1


def test_shorten_keeps_what_fits_and_marks_what_was_cut() -> None:
    assert shorten("exactly ten", 11) == "exactly ten"
    assert shorten("heat, water, metal", 13) == "heat, water…"
    assert width(shorten("日本語のラベル", 7)) <= 7
    assert shorten("日本語のラベル", 7).endswith("…")


def test_markup_cannot_close_a_script_element() -> None:
    assert "<" not in plot_label("</script><script>alert(1)</script>")
    assert without_markup("a < b > c") == "a ‹ b › c"


def test_a_label_of_nothing_visible_says_so() -> None:
    assert plot_label("\u200b \n") == NO_LABEL
    assert plot_label(None) == NO_LABEL


def test_drawable_looks_at_every_character() -> None:
    glyphs = {ord(char) for char in "abc"}
    assert drawable("cab", glyphs)
    assert not drawable("cab日", glyphs)


def test_what_rounds_to_zero_has_no_sign() -> None:
    assert [without_zero_sign(text) for text in ("-0.00", "+0.0%", "-0", "-0.01", "+1.0%", "0.00")] == [
        "0.00", "0.0%", "0", "-0.01", "+1.0%", "0.00",
    ]  # fmt: skip
    assert (number(-0.001), number(-0.0004, ".1%"), number(-0.01), number(None)) == ("0.00", "0.0%", "−0.01", "—")
