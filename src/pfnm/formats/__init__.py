"""Files <-> `Network`, by the file's extension."""

from __future__ import annotations

import os
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

from pfnm.errors import PFNMError
from pfnm.formats import arrays, onnx_reader, onnx_writer, pytorch, skops
from pfnm.formats.content import LOOKS_LIKE_DATA, Content, Stored
from pfnm.formats.files import check_output, write_whole
from pfnm.formats.limits import check_regular
from pfnm.formats.onnx_graphs import holds_convolutions, read_graphs
from pfnm.formats.sites import site_names
from pfnm.networks.network import Label, Network, Tensor
from pfnm.networks.outputs import with_head
from pfnm.networks.perceptron import mlp

LONGEST_STORY = 200  # characters of another library's message that we pass on

DATA_EXTENSIONS = (".csv", ".tsv", ".parquet", ".npy")  # never a network

__all__ = ["FORMATS", "check_target", "load", "save", "site_names"]


class Format(NamedTuple):
    """A kind of file: its title, the extra that brings its library, how to read and write it."""

    title: str
    extra: str
    read: Callable[[Path, str], Content]
    write: Callable[[Network], bytes]
    stored: Callable[..., Stored] | None = None
    """Its tensors by name, of any architecture, where it has such."""
    pack: Callable[[Mapping[str, Tensor], dict[str, Any], str], bytes] | None = None


PYTORCH = Format(
    "PyTorch checkpoint",
    "torch",
    pytorch.read,
    pytorch.write,
    pytorch.stored_tensors,
    pytorch.pack,
)
ONNX = Format("ONNX model", "onnx", onnx_reader.read, onnx_writer.write)
FORMATS = {
    ".safetensors": Format(
        "safetensors file",
        "all",
        arrays.read_safetensors,
        arrays.write_safetensors,
        arrays.stored_safetensors,
        arrays.pack_safetensors,
    ),
    ".npz": Format(
        ".npz file",
        "all",
        arrays.read_npz,
        arrays.write_npz,
        arrays.stored_npz,
        arrays.pack_npz,
    ),
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".checkpoint", ".bin"), PYTORCH),
    ".onnx": ONNX,
    ".skops": Format("skops file", "sklearn", skops.read, skops.write),
}

PICKLED = (
    "a pickle, which could run code, so pfnm neither opens nor writes one; where the model was "
    'made, write it with skops.io.dump(model, "model.skops") or as ONNX'
)
KERAS = (
    "a file of Keras or TensorFlow, which pfnm does not read; export the model as ONNX (tf2onnx)"
)
WAYS_OUT = {
    **dict.fromkeys((".pkl", ".pickle", ".joblib", ".sav"), PICKLED),
    **dict.fromkeys((".h5", ".hdf5", ".keras", ".tflite", ".pb"), KERAS),
}
"""What to do with files that people often have and that are not for pfnm."""


def load(
    path: str | os.PathLike[str],
    *,
    activation: str | None = None,
    output: str | None = None,
    labels: Sequence[Label] | None = None,
    name: str | None = None,
) -> Network:
    """Read a network from a file. Nothing in the file is ever executed.

    Of what would take more than 1 GiB in memory nothing is read; PFNM_MAX_BYTES in the environment
    sets another limit.

    `activation` and `output` count where the file does not state its own (default: "relu" and
    "identity"); `labels` must agree with those of the file, if it has any. `name` is by default the
    file's name without its extension.
    """
    file = os.fspath(path)
    if Path(path).suffix.lower() in DATA_EXTENSIONS:
        raise PFNMError(f"{file}: {LOOKS_LIKE_DATA}")
    kind = format_of(path)
    check_readable(file)
    if kind is ONNX and holds_convolutions(path):
        if activation is not None:
            raise PFNMError(f"{file}: a graph states its activations; leave the activation out")
        (network,) = read_graphs([path], labels=None if labels is None else [labels])
        network = network if output is None else with_head(network, output)
        return renamed(network, name or Path(path).stem)
    with guarded(file, kind):
        content = kind.read(Path(path), file)
        network = network_of(content, file, activation=activation, output=output, labels=labels)
    return renamed(network, name or Path(path).stem)


def renamed(network: Network, name: str) -> Network:
    """The network under another name; its tensors are not checked again."""
    other = copy(network)
    object.__setattr__(other, "name", name)
    return other


@contextmanager
def guarded(file: str, kind: Format) -> Iterator[None]:
    """Other libraries' errors while a file is read become ours, and their warnings are silent."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except PFNMError:
        raise
    except ImportError as error:
        raise not_installed(file, kind, error) from error
    except Exception as error:
        raise PFNMError(
            f"{file}: it is no {kind.title}, or it is damaged ({told(error)}); save it again"
        ) from error


def network_of(
    content: Content,
    file: str,
    *,
    activation: str | None = None,
    output: str | None = None,
    labels: Sequence[Label] | None = None,
) -> Network:
    """The network that a file holds, with what the caller knows of it; its name is the file's."""
    stated = content.labels or content.notes.get("labels")
    if stated and labels is not None and tuple(labels) != tuple(stated):
        raise PFNMError(
            f"{file}: the file's labels are {list(stated)}, given were {list(labels)}; leave the "
            "labels out or correct them"
        )
    known = content.activation or content.notes.get("activation") or activation
    return mlp(
        content.weights,
        content.biases,
        names=content.names,
        transposed=content.transposed,
        activation=known or "relu",
        output=content.output or noted_output(content) or output or "identity",
        labels=stated or labels,
        name=file,  # so that an error in the tensors names the file
        metadata=content.metadata,
        activation_told=known is not None,
        **content.inputs_told,
    )


def save(network: Network, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a network to a file, whole or not at all; an existing file is replaced with `force`."""
    check_target(path, force=force)
    file, kind = os.fspath(path), format_of(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = kind.write(network)
    except PFNMError:
        raise
    except ImportError as error:
        raise not_installed(file, kind, error) from error
    except Exception as error:
        raise PFNMError(
            f"{file}: this network cannot be written as {kind.title} ({told(error)}); choose "
            "another format"
        ) from error
    write_whole(Path(path), data, force=force)


def check_target(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """An error if `save` would refuse this path, for telling so before a long computation."""
    format_of(path)
    check_output(Path(path), force=force)


def format_of(path: str | os.PathLike[str]) -> Format:
    """The format that belongs to a file's extension."""
    extension = Path(path).suffix.lower()
    if extension in WAYS_OUT:
        raise PFNMError(f"{os.fspath(path)}: {WAYS_OUT[extension]}")
    if extension not in FORMATS:
        raise PFNMError(
            f"{os.fspath(path)}: unknown extension {extension!r}; expected one of "
            f"{' '.join(FORMATS)}"
        )
    return FORMATS[extension]


def check_readable(file: str) -> None:
    """An error unless the file is there, may be read and is not empty; at once for a pipe."""
    size = check_regular(file)
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise PFNMError(f"{file}: cannot be read ({error.strerror}); check the path") from error
    if size == 0:
        raise PFNMError(f"{file}: it is empty; save or copy it again")


def not_installed(file: str, kind: Format, error: ImportError) -> PFNMError:
    """The error for a library that is missing, with the extra that brings it."""
    return PFNMError(
        f"{file}: a {kind.title} needs {error.name or 'a library'}, which is not installed; pip "
        f"install 'pfnm[{kind.extra}]'"
    )


def told(error: Exception) -> str:
    """Another library's error in one line, shortened: some libraries tell long stories."""
    text = textwrap.shorten(str(error), LONGEST_STORY, placeholder="...")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def noted_output(content: Content) -> str | None:
    """The output function in a file's notes; "identity" says that nobody knew."""
    noted: str | None = content.notes.get("output")
    return None if noted == "identity" else noted
