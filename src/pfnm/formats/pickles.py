"""What the keys in a pickle would cost to hash, told without reading it.

A tuple may hold another many times, which takes no room; but as a key of a dict it is hashed whole,
and sixty tuples, each of the one before it twice, take years.
"""

from __future__ import annotations

MOST_HASHED = 10**8  # values, as parts of keys: a second or two
MOST_PICKLES = 5  # one after another at the start of a file: so many has PyTorch's old format

# The instructions that PyTorch reads (it stops at any other), a byte each, and how far it is from
# there to the next one; for texts, to the end of their length.
PUTS = dict(zip(b"qr", (2, 5), strict=True))  # the value on top gets a number
GETS = dict(zip(b"hj", (2, 5), strict=True))  # and is fetched by it
VALUES = dict.fromkeys(b"N\x88\x89)]}\x8f", 1) | dict(zip(b"KMJG", (2, 3, 5, 9), strict=True))
TEXTS = dict(zip(b"XU\x8a", (5, 2, 2), strict=True))
GLOBAL, PROTO, STOP = b"c\x80."
TUPLES = dict(zip(b"\x85\x86\x87", (1, 2, 3), strict=True))  # how many values are in them
MAKING = set(b"R\x81ba")  # one value of two: reduce, new object, build, append
MARK, TUPLE, APPENDS, SETITEMS, SETITEM, BINPERSID, REDUCE = b"(teusQR"
JOINS = {*TUPLES, *MAKING, MARK, TUPLE, APPENDS, SETITEMS, SETITEM, BINPERSID}


def hashes_too_much(data: bytes) -> bool:
    """Whether the keys of a file that begins with pickles hold more than an honest file's do."""
    place = 0
    for _ in range(MOST_PICKLES):
        try:
            hashed, place = Sizes(data, place).run()
        except (IndexError, ValueError):  # no pickle, or none that PyTorch reads
            return False
        if hashed > MOST_HASHED:
            return True
    return False


class Sizes:
    """A pickle's instructions, done with sizes instead of values."""

    def __init__(self, data: bytes, place: int) -> None:
        self.data, self.place = data, place
        self.stack: list[int] = []
        self.below: list[list[int]] = []  # the stacks that wait for their marks
        self.memo: dict[int, int] = {}  # of those larger than 1
        self.hashed = 0

    def run(self) -> tuple[int, int]:
        """How many values are hashed, and where the pickle ends."""
        data, place, stack, memo = self.data, self.place, self.stack, self.memo
        while True:
            sign = data[place]
            if sign in PUTS:
                end = place + PUTS[sign]
                if stack[-1] > 1:
                    memo[int.from_bytes(data[place + 1 : end], "little")] = stack[-1]
                place = end
            elif sign in GETS:
                end = place + GETS[sign]
                stack.append(memo.get(int.from_bytes(data[place + 1 : end], "little"), 1))
                place = end
            elif sign in VALUES:
                stack.append(1)
                place += VALUES[sign]
            elif sign in TEXTS:
                end = place + TEXTS[sign]
                stack.append(1)
                place = end + int.from_bytes(data[place + 1 : end], "little")
            elif sign in JOINS:
                stack = self.join(sign)
                place += 1
            elif sign == GLOBAL:
                stack.append(1)
                place = data.index(b"\n", data.index(b"\n", place) + 1) + 1
            elif sign == PROTO:
                place += 2
            elif sign == STOP:
                return self.hashed, place + 1
            else:
                raise ValueError(sign)

    def join(self, sign: int) -> list[int]:
        """An instruction that makes one value of several, or fills one; the stack after it."""
        stack = self.stack
        if sign in TUPLES:
            stack[-TUPLES[sign] :] = [1 + sum(stack[-TUPLES[sign] :])]
        elif sign == MARK:
            self.below.append(stack)
            self.stack = []
        elif sign == TUPLE:
            self.stack = self.below.pop()
            self.stack.append(1 + sum(stack))
        elif sign in MAKING:
            top = stack.pop()
            if sign == REDUCE:  # what is made of a tuple may be hashed as that
                stack[-1] = top
        elif sign in (APPENDS, SETITEMS):
            self.stack = self.below.pop()
            self.hashed += sum(stack[::2]) if sign == SETITEMS else 0
        elif sign == SETITEM:
            self.hashed += stack[-2]
            del stack[-2:]
        return self.stack
