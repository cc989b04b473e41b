"""The shape of the tree: import direction, pure modules, sizes, one test file per module."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("aitrace", "recorders", "replayer", "reports")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
CODE = [path for path in MODULES if path.name not in ("__init__.py", "__main__.py")]
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
NESTING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith)
IMPURE = {
    "asyncio",
    "aiohttp",
    "click",
    "logging",
    "os",
    "pathlib",
    "rich",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uvloop",
}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported_modules(path: Path) -> set[str]:
    nodes = list(ast.walk(tree_of(path)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def purpose(path: Path) -> str:
    return (ast.get_docstring(tree_of(path)) or "").split("\n")[0]


def is_pure(path: Path) -> bool:
    return purpose(path).startswith("Pure:")


def nesting(node: ast.AST, depth: int = 0) -> int:
    inner = [
        child
        for child in ast.iter_child_nodes(node)
        if not isinstance(child, (*FUNCTION, ast.ClassDef, ast.Lambda))
    ]
    return max(
        [
            depth,
            *(nesting(child, depth + isinstance(child, NESTING) - _is_elif(node, child)) for child in inner),
        ]
    )


def _is_elif(parent: ast.AST, child: ast.AST) -> bool:
    return isinstance(parent, ast.If) and isinstance(child, ast.If) and parent.orelse == [child]


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        lines -= function.body[0].end_lineno - function.body[0].lineno + 1
    return lines


def does_something(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in function.body
    )


def functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (f"{name_of(path)}:{node.name}", node)
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, FUNCTION)
    ]


def test_there_is_something_to_check():
    assert len(CODE) > 30
    assert len([path for path in CODE if is_pure(path)]) > 15


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_first_docstring_line_says_pure_or_io(path):
    assert re.match(r"(Pure|I/O): \S", purpose(path))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_packages_import_only_themselves_and_aitrace(path):
    own = path.relative_to(ROOT).parts[0]
    used = {module.split(".")[0] for module in imported_modules(path)} & set(PACKAGES)
    assert used <= {own, "aitrace"}


@pytest.mark.parametrize("path", [p for p in CODE if is_pure(p)], ids=name_of)
def test_pure_modules_import_nothing_that_acts(path):
    used = {module.split(".")[0] for module in imported_modules(path)}
    assert used & IMPURE == set()


@pytest.mark.parametrize("path", [p for p in CODE if is_pure(p)], ids=name_of)
def test_pure_modules_import_only_pure_modules(path):
    ours = [module for module in imported_modules(path) if module.split(".")[0] in PACKAGES]
    files = [ROOT / (module.replace(".", "/") + ".py") for module in ours]
    assert [name_of(file) for file in files if file.exists() and not is_pure(file)] == []


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_modules_have_at_most_700_lines(path):
    assert path.read_text().count("\n") <= 700


def test_functions_have_at_most_120_lines():
    assert [name for name, node in functions() if body_lines(node) > 120] == []


def test_nesting_is_at_most_3():
    assert [name for name, node in functions() if nesting(node) > 3] == []


def test_only_recorders_import_mitmproxy():
    users = {
        p.relative_to(ROOT).parts[0]
        for p in MODULES
        if any(m.startswith("mitmproxy") for m in imported_modules(p))
    }
    assert users <= {"recorders"}


@pytest.mark.parametrize("path", [p for p in CODE if is_pure(p)], ids=name_of)
def test_pure_modules_have_a_test_file_of_their_own(path):
    package, *folders, file = path.relative_to(ROOT).parts
    stem = file.removesuffix(".py")
    tests = ROOT / "tests" / "unit" / package
    names = {f"test_{stem}.py", f"test_{'_'.join([*folders, stem])}.py"}
    # Modules that only hold types and signatures have nothing to run.
    only_types = not any(
        isinstance(node, FUNCTION) and does_something(node) for node in ast.walk(tree_of(path))
    )
    assert only_types or any((tests / name).exists() for name in names)


def test_every_package_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = {".".join(path.relative_to(ROOT).parts[:-1]) for path in MODULES if path.name == "__init__.py"}
    assert found - set(project["tool"]["setuptools"]["packages"]) == set()


def test_nothing_is_left_for_later():
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|NotImplemented" r"Error)\b")
    assert [name_of(path) for path in MODULES if marks.search(path.read_text())] == []


def test_help_loads_no_network_or_table_library():
    script = "import sys; from aitrace.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\nprint([m for m in ('aiohttp', 'polars', 'mitmproxy', 'plotly') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
