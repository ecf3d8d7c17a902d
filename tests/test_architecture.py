"""Who may import whom, and what `import pfnm` may load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "pfnm"
LEVELS = [
    {"errors"},
    {"networks"},
    {"matching"},
    {"fusing"},
    {"formats", "frameworks", "threads", "tracing"},
    {"conversion"},
    {"evaluate", "measures"},
    {"teaching"},
    {"polishing"},
    {"pages", "verdicts"},
    {"fusion"},
    {"api", "many"},
    {"lab"},
    {"flower"},
    {"demo", "experiments", "frontier"},
    {"report"},
    {"cli"},
]
NUMERIC = {"errors", "networks", "matching", "fusing"}  # without PyTorch and all that is heavy
LEVEL = {part: number for number, parts in enumerate(LEVELS) for part in parts}


def imports(path: Path) -> set[str]:
    """The full names of the modules a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "pfnm":
            found |= {f"pfnm.{alias.name}" for alias in node.names if alias.name in LEVEL}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=str)
def test_imports_point_downwards(path: Path) -> None:
    part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if part in ("__init__", "__main__"):
        return
    for name in imports(path):
        if name.startswith("pfnm."):
            assert LEVEL[name.split(".")[1]] <= LEVEL[part], f"{path} imports {name}"
        elif part in NUMERIC:
            top = name.split(".")[0]
            assert top in {"numpy", "scipy"} | set(sys.stdlib_module_names), f"{path}: {name}"


def test_importing_pfnm_loads_no_heavy_library() -> None:
    code = "import sys, pfnm; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "pfnm.matching.matching" in loaded
    assert not loaded & {
        "torch",
        "flwr",
        "sklearn",
        "skops",
        "onnx",
        "matplotlib",
        "pandas",
        "pyarrow",
    }
