"""Damage: a value with a flipped bit, a file with a flipped, zeroed or cut part."""

from __future__ import annotations

PAGE = 4096


def hurt(txn, key):
    """Flip a bit of a stored value."""
    value = bytearray(txn.get(key))
    value[-1] ^= 1
    txn.put(key, bytes(value))


def damaged(original, path, chance):
    """Write a damaged copy of a file; how it was damaged."""
    data = bytearray(original)
    page = chance.randrange(len(data) // PAGE) * PAGE
    how = chance.choice(["bit", "head", "zero", "cut", "swap", "stale"])
    at = page + chance.randrange(PAGE)
    if how == "bit":
        data[at] ^= 1 << chance.randrange(8)
    elif how == "head":
        at = page + chance.randrange(64)
        data[at] = chance.randrange(256)
    elif how == "zero":
        length = chance.choice([1, 8, 512, PAGE])
        data[at : at + length] = bytes(len(data[at : at + length]))
    elif how == "cut":
        del data[at:]
    else:
        other = chance.randrange(len(data) // PAGE) * PAGE
        data[page : page + PAGE] = original[other : other + PAGE]
        if how == "swap":
            data[other : other + PAGE] = original[page : page + PAGE]
    path.write_bytes(data)
    return f"{how} at {at} of page {page // PAGE}"
