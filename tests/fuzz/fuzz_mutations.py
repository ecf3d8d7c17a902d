"""Mutations: of bytes, of JSON, of archives, and of each format by its own structure."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

DEEP = "\x00deep\x00"  # stands for a nesting that no parser likes
NASTY_TEXT = ("", "\x1b[31m\x9b2J", "\u202eabc", "\ud800", "[/b]", "../../x", "/dev/zero",
              "x" * 5000, "nan", "pfnm.one", "input", "\n", "é", "0", "-1", "1e400")  # fmt: skip
NASTY_NUMBERS = (0, -1, 1, 2, 3, 7, 0.5, -0.5, 1e308, -1e308, 5e-324, 1e39, 2**31, 2**63, 2**64,
                 10**400, float("nan"), float("inf"), float("-inf"))  # fmt: skip
NASTY_BYTES = (b"\0", b"\xff" * 8, b"\x00" * 8, b"\xff\xff\xff\x7f", b"PK\x03\x04", b"\n", b'"',
               b"{", b"[" * 3000, b",", b"1e400", b"nan", b"\x80\x02c", b"\x1b[2J")  # fmt: skip
OPERATIONS = ("Gemm", "MatMul", "Add", "Relu", "Cast", "Softmax", "Reshape", "Transpose", "Loop",
              "Identity", "Conv", "Sub", "Div", "Slice", "Nonsense")  # fmt: skip


def any_value(rng: random.Random) -> Any:
    """Something that hardly anybody expects."""
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: rng.choice(NASTY_NUMBERS),
        lambda: rng.choice(NASTY_TEXT),
        lambda: rng.choice((None, True, False, [], {}, [[]], [None], {"a": 1}, DEEP)),
        lambda: [rng.choice(NASTY_NUMBERS) for _ in range(rng.choice((1, 2, 4, 2000)))],
    )
    return rng.choice(kinds)()


def mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, cut, doubled or put in."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place = rng.randrange(len(changed) + 1)
        length = rng.choice((1, 1, 4, 8, 100))
        kind = rng.randrange(6)
        if kind == 0 and changed:
            changed[place % len(changed)] = rng.randrange(256)
        elif kind == 1:
            changed[place : place + length] = rng.choice(NASTY_BYTES)
        elif kind == 2:
            del changed[place : place + length]
        elif kind == 3:
            changed[place:place] = changed[place : place + length]
        elif kind == 4:
            changed[place:place] = rng.choice(NASTY_BYTES)
        elif kind == 5 and rng.random() < 0.5:
            del changed[place:]
    return bytes(changed)


def mutated_json(text: str, rng: random.Random) -> str:
    """One or two places of a JSON document replaced, removed or renamed."""
    document = {"root": json.loads(text)}
    for _ in range(rng.choice((1, 1, 2))):
        place: Any = document
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = rng.choice(keys) if keys else None
            inner = place[key] if key is not None else None
            if not isinstance(inner, dict | list) or not inner or rng.random() < 0.2:
                break
            place = inner
        if key is None:
            continue
        kind = rng.randrange(5)
        if kind == 0 and place is not document:
            del place[key]
        elif kind == 1 and isinstance(place, dict) and place is not document:
            place[rng.choice(NASTY_TEXT)] = place.pop(key)
        elif kind == 2 and isinstance(inner, list):
            place[key] = inner * rng.choice((2, 500)) if rng.random() < 0.7 else inner[:-1]
        else:
            place[key] = any_value(rng)
    deep = "[" * 100_000 if rng.random() < 0.5 else "[" * 900 + "]" * 900
    return json.dumps(document["root"]).replace(json.dumps(DEEP), deep)


def mutated_text(data: bytes, rng: random.Random) -> bytes:
    """Lines and cells of a table replaced, doubled, removed."""
    lines = data.decode(errors="replace").split("\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(len(lines))
        kind = rng.randrange(4)
        if kind == 0:
            cells = lines[place].split(",")
            value = any_value(rng)
            cells[rng.randrange(len(cells))] = "" if value is None else str(value)
            lines[place] = ",".join(cells)
        elif kind == 1:
            lines[place] = ",".join(lines[place].split(",")[:-1])
        elif kind == 2:
            lines.insert(place, lines[rng.randrange(len(lines))])
        elif len(lines) > 1:
            del lines[place]
    return "\n".join(lines).encode(errors="surrogatepass")


def mutated_safetensors(data: bytes, rng: random.Random) -> bytes:
    """Another header before the same tensors."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    notes = header.get("__metadata__", {})
    if "pfnm" in notes and rng.random() < 0.5:
        notes["pfnm"] = mutated_json(notes["pfnm"], rng)
        text = json.dumps(header)
    else:
        text = mutated_json(json.dumps(header), rng)
    told = text.encode(errors="surrogatepass")
    size = len(told) if rng.random() < 0.95 else rng.choice((0, 2**40, 2**64 - 1))
    return size.to_bytes(8, "little") + told + data[8 + length :]


def any_array(rng: random.Random) -> Any:
    """An array of an odd kind, shape or content."""
    shape = rng.choice(((), (0,), (0, 4), (4,), (6, 5), (5, 4), (2, 2, 2), (1, 1)))
    kind = rng.choice(("f8", "f4", "f2", "i8", "u1", "?", "U3", "S3", "c16", "M8[s]", "V4", ">f8"))
    if kind in ("M8[s]", "V4"):
        return np.zeros(shape, kind)
    values = np.array([rng.choice((0.0, 1.0, 1e30, -1.0)) for _ in range(int(np.prod(shape)))])
    return values.astype("f4").astype(kind).reshape(shape)


def npy(array: Any) -> bytes:
    """The bytes of an .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def mutated_archive(data: bytes, rng: random.Random) -> bytes:
    """One member of a zip archive changed, renamed, doubled, compressed, or another put in."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place = rng.randrange(len(members))
    name, content = members[place]
    kind = rng.randrange(7)
    if kind == 0:
        members[place] = (name, mutated_bytes(content, rng))
    elif kind == 1 and name.endswith("json"):
        members[place] = (name, mutated_json(content.decode(), rng).encode(errors="surrogatepass"))
    elif kind == 2:
        members[place] = (rng.choice(NASTY_TEXT).replace("\ud800", "?") + ".npy", content)
    elif kind == 3:
        members[place] = (name, npy(any_array(rng)))
    elif kind == 4:
        members.append((f"m{rng.randrange(9)}.npy", npy(any_array(rng))))
    elif kind == 5:
        del members[place]
    else:
        head = (
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (%d, %d), }"
        )
        sizes = rng.choice((10**6, 5, 0, 2**40)), rng.choice((10**6, 2**62, 1))
        members[place] = (name, (head % sizes).ljust(127) + b"\n" + bytes(rng.choice((0, 10**6))))
    file = io.BytesIO()
    packing = zipfile.ZIP_DEFLATED if rng.random() < 0.3 else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", packing) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def mutated_onnx(data: bytes, rng: random.Random) -> bytes:
    """Nodes, weights or notes of a graph changed."""
    import onnx

    model = onnx.load_from_string(data)
    graph = model.graph
    node, tensor = rng.choice(graph.node), rng.choice(graph.initializer)
    kind = rng.randrange(10)
    if kind == 0:
        node.op_type = rng.choice(OPERATIONS)
    elif kind == 1:
        node.input[rng.randrange(len(node.input))] = rng.choice(
            [*(one.name for one in graph.initializer), "nowhere", *node.output]
        )
    elif kind == 2:
        tensor.dims[:] = [rng.choice((0, 1, 5, 6, 2**40, -1)) for _ in range(rng.randrange(4))]
    elif kind == 3:
        tensor.data_type = rng.randrange(25)
    elif kind == 4:
        tensor.raw_data = mutated_bytes(tensor.raw_data, rng)
    elif kind == 5:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.ClearField("raw_data")
        place = tensor.external_data.add()
        place.key, place.value = "location", rng.choice(("../x", "/dev/zero", "site0.npz", "", "x"))
    elif kind == 6:
        graph.node.remove(node)
    elif kind == 7:
        graph.node.add().CopyFrom(node)
    elif kind == 8 and model.metadata_props:
        model.metadata_props[0].value = mutated_json(model.metadata_props[0].value, rng)
    else:
        cast = graph.node.add()
        cast.op_type, cast.name = rng.choice(OPERATIONS), "more"
        cast.input.append(node.output[0])
        cast.output.append("more")
        node.input[0] = "more" if rng.random() < 0.5 else node.input[0]
    return bytes(model.SerializeToString())


def any_checkpoint(rng: random.Random) -> bytes:
    """What people, or others, put into a .pt file."""
    import torch

    size = rng.choice((5, 10**6))
    objects: tuple[Any, ...] = (
        {"a.weight": torch.ones(1, 1).expand(size, size)},
        {"a.weight": torch.eye(5).to_sparse(), "b.weight": torch.ones(4, 5)},
        {"a.weight": torch.ones(5, 6, dtype=torch.bfloat16), "b.weight": torch.ones(4, 5)},
        {"a.weight": torch.ones(5, 6, dtype=torch.complex64), "b.weight": torch.ones(4, 5)},
        {"a.weight": torch.empty(5, 6, device="meta"), "b.weight": torch.ones(4, 5)},
        {rng.choice(NASTY_TEXT): torch.ones(5, 6), "b": torch.ones(4, 5)},
        {f"w{rng.random()}": torch.ones(5, 5) for _ in range(rng.choice((3, 40)))},
        [any_value(rng)],
        {"state_dict": {"a.weight": any_value(rng), "b.weight": torch.ones(2, 2)}},
    )
    file = io.BytesIO()
    torch.save(rng.choice(objects), file)
    return file.getvalue()


STRUCTURED: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".safetensors": mutated_safetensors,
    ".npz": mutated_archive,
    ".pt": lambda data, rng: (
        any_checkpoint(rng) if rng.random() < 0.3 else mutated_archive(data, rng)
    ),
    ".onnx": mutated_onnx,
    ".skops": mutated_archive,
    ".json": lambda data, rng: mutated_json(data.decode(), rng).encode(errors="surrogatepass"),
    ".csv": mutated_text,
    ".jsonl": mutated_text,
    ".md": mutated_text,
    ".parquet": mutated_bytes,
}


def mutated(suffix: str, data: bytes, rng: random.Random) -> bytes:
    """A file of this kind, changed in its bytes or in its structure."""
    way = mutated_bytes if rng.random() < 0.3 else STRUCTURED[suffix]
    return way(data, rng)
