"""Floats that keep their text. Pure."""

from typing import Self


class FloatText(float):
    """A float that remembers how it is written, so that `exact_json.dumps` keeps its digits.

    Results of arithmetic are floats.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        """The nearest number, and the text."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __reduce__(self) -> tuple[type["FloatText"], tuple[str]]:
        """Copies keep the text."""
        return FloatText, (self.text,)


FloatText.__name__ = "float"  # JMESPath looks at the names of types
