"""Whole numbers that are written with a unit, such as 2k, 1e6 and 4GB; loads nothing large."""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = ["amount_of", "bytes_of"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_AMOUNT = re.compile(r"(\d+\.?\d*|\.\d+)(e\+?\d{1,3})?\s*([kmgt]?i?)", re.IGNORECASE)


def amount_of(text: str) -> int | None:
    """The whole number above 0 that a text such as "2.5k" means, or None if it means none.

    >>> amount_of("1e6"), amount_of("2.5k"), amount_of("2M"), amount_of("0.5"), amount_of("many")
    (1000000, 2500, 2000000, None, None)
    """
    written = _AMOUNT.fullmatch(text.strip())
    unit = None if written is None else _UNITS.get(written[3].lower())
    if written is None or unit is None:
        return None
    found = Decimal(written[1] + (written[2] or "")) * unit
    whole = 1 <= found < 2**63 and found == found.to_integral_value()
    return int(found) if whole else None


def bytes_of(text: str) -> int | None:
    """The number of bytes that a text means, or None; GB is 10**9 bytes, GiB 2**30.

    >>> bytes_of("4GB"), bytes_of("4 GiB"), bytes_of("2e9"), bytes_of("large")
    (4000000000, 4294967296, 2000000000, None)
    """
    return amount_of(text.strip().lower().removesuffix("b"))
