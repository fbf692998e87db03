"""The laws of the code base that a machine can check: which way imports point, purity, sizes, names, words.

Each collects all that breaks it, as file:line and what is wrong there.
"""

import ast
import functools
import gc
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
AREAS = ["fencepost", "effects", "protocol", "storage", "broker", "client"]
AREAS += ["spark", "console", "cli", "testing", "bench"]
MODULES = sorted(path for area in AREAS for path in (ROOT / area).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

# Which areas an area may import (law 1). `cli` stands on top of everything.
BELOW = {
    "effects": set(),
    "protocol": set(),
    "storage": {"effects", "protocol"},
    "broker": {"effects", "protocol", "storage"},
    "client": {"effects", "protocol"},
    "spark": {"effects", "protocol", "client"},
    "console": {"effects", "protocol", "client"},
    "testing": {"effects", "protocol", "storage", "broker", "client"},
    "bench": {"effects", "protocol", "storage", "client", "spark"},
    "cli": set(AREAS),
    "fencepost": set(AREAS),
}

# What a pure module does not import (law 2): it decides, and never touches the outside; time is an argument, ids are
# given. A module is pure if a sentence of its docstring begins with `Pure` (`Pure.`, or `Pure: time is an argument.`),
# or of the docstring of a package above it. `Pure except for …` is not enough: those who say it are listed.
SAYS_PURE = re.compile(r"\bPure[.:;]")
NEARLY_PURE = {"broker/net/connection.py", "broker/quotas/connection_pace.py", "broker/quotas/mutes.py"}
NEARLY_PURE |= {"console/routes.py"}
LEAST_PURE = 217  # one that does not say it any more would not be noticed otherwise
OUTSIDE = {"asyncio", "os", "time", "random", "socket", "threading", "subprocess", "select", "secrets", "uuid"}

NOT_INSTALLED = {"fencepost.bench.bounds", "fencepost.bench.contest", "fencepost.bench.loads", "fencepost.bench.peers"}

TOP_LEVEL = {("spark", "autoload"): "pyspark_fencepost"}  # packages whose names others prescribe

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_NAME = 80  # of a test, in characters
IMPORT = re.compile(r"\s*(?:from|import) fencepost\.([\w.]+)")
TEST = re.compile(r"\s*(?:async )?def (test_\w+)")
CODED = re.compile(r"test_t\d+_")  # a code that only a list outside of the repository defines
VAGUE = re.compile(r"(manager|helper|util|common|base|info|data|process|handler)s?(_|$)")
ELSEWHERE = re.compile(rf"(?<!\w){re.escape(str(ROOT))}\b|\bissue #?\d", re.IGNORECASE)  # of one machine, one tracker


@pytest.fixture(autouse=True, scope="module")
def no_collections() -> Iterator[None]:
    """Syntax trees are millions of objects that all live on: collections would more than double the time."""
    gc.disable()
    yield
    gc.enable()


@functools.cache
def area_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text()


@functools.cache
def nodes_by_type(path: Path) -> dict[type[ast.AST], list[ast.AST]]:
    """Return the nodes of a module's syntax tree, by their types: most checks look at one type of a hundred."""
    found: dict[type[ast.AST], list[ast.AST]] = {}
    todo: list[ast.AST] = [ast.parse(text_of(path))]
    while todo:
        node = todo.pop()
        found.setdefault(type(node), []).append(node)
        for value in vars(node).values():
            if isinstance(value, ast.AST):
                todo.append(value)
            elif type(value) is list:
                todo += [each for each in value if isinstance(each, ast.AST)]
    return found


def nodes_of(path: Path, *types: type[ast.AST]) -> list[Any]:
    """Return the nodes of these types in a module's syntax tree."""
    return [node for each in types for node in nodes_by_type(path).get(each, ())]


def docstring_of(path: Path) -> str:
    return ast.get_docstring(nodes_of(path, ast.Module)[0]) or ""


@functools.cache
def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines_of(paths: Iterable[Path]) -> Iterator[tuple[Path, int, str]]:
    """Return each line of these files, with its file and number."""
    return ((path, n, line) for path in paths for n, line in enumerate(text_of(path).splitlines(), 1))


def at(path: Path, line: int, what: str) -> str:
    return f"{short(path)}:{line} {what}"


@functools.cache
def imports_of(path: Path) -> list[tuple[str, int]]:
    """Areas that a module imports, and top-level names of the other modules it imports, each with its line."""
    found: list[tuple[str, int]] = []
    package = path.relative_to(ROOT).parent.parts  # ("broker", "handlers")
    for node in nodes_of(path, ast.Import, ast.ImportFrom):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            parts = node.module.split(".")
            names = [parts[1] if parts[0] == "fencepost" and len(parts) > 1 else parts[0]]
        elif isinstance(node, ast.ImportFrom) and node.level > len(package):  # out of the area, to its siblings
            names = node.module.split(".")[:1] if node.module else [alias.name for alias in node.names]
        found += [(name, node.lineno) for name in names]
    return found


def imports_among(path: Path, names: set[str]) -> list[str]:
    return [at(path, line, f"imports {name}") for name, line in imports_of(path) if name in names]


def test_the_checks_of_this_file_find_the_modules_of_every_area():
    """If an area moved, or a pattern matched nothing, each check would pass without looking at anything."""
    by_area = {area: sum(path.is_relative_to(ROOT / area) for path in MODULES) for area in AREAS}
    least = {"fencepost": 2, "effects": 15, "protocol": 30, "storage": 45, "broker": 150, "client": 100}
    least |= {"spark": 15, "console": 40, "cli": 60, "testing": 10, "bench": 40}
    assert {area: count for area, count in by_area.items() if count < least[area]} == {}
    assert len(TESTS) > 500


def modules_imported_by(path: Path) -> list[tuple[str, int]]:
    """Modules of ours that are imported from, `effects/disk/aio` for instance, each with its line."""
    package = path.relative_to(ROOT).parent.parts
    found: list[tuple[str, int]] = []
    for node in nodes_of(path, ast.Import, ast.ImportFrom):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom) and node.level and package[0] in AREAS:
            names = [".".join((*package[: len(package) + 1 - node.level], *filter(None, names)))]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        own = [name.removeprefix("fencepost.") for name in names if not name.startswith(("tests", "."))]
        found += [(name.replace(".", "/"), node.lineno) for name in own if name.split(".")[0] in AREAS]
    return found


def modules_imported_by_a_test(path: Path) -> list[tuple[str, int]]:
    """Return the imported modules and their lines, found by lines alone: parsing all tests takes ten times as long."""
    return [(match[1].replace(".", "/"), n) for _, n, line in lines_of([path]) if (match := IMPORT.match(line))]


def test_every_imported_module_of_this_project_exists():
    """Without it, a test that seldom runs would fail long after a module has moved."""
    found = [(path, name, line) for path in MODULES for name, line in modules_imported_by(path)]
    found += [(path, name, line) for path in TESTS for name, line in modules_imported_by_a_test(path)]
    assert len(found) > 5000
    there = {short(path.with_suffix("")) for path in MODULES} | {short(path.parent) for path in MODULES}
    there |= {name.removeprefix("fencepost/") for name in there}
    assert not [at(path, line, f"imports {name}") for path, name, line in found if name not in there]


def test_each_package_imports_only_the_packages_below_it():
    assert not [
        found for path in MODULES for found in imports_among(path, set(AREAS) - BELOW[area_of(path)] - {area_of(path)})
    ]


def module_of(path: Path) -> str:
    """`broker.net.server`, as the file stands under the root."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def imports_within(package: str) -> dict[str, set[str]]:
    """Return, by module of a package, which others of it are imported there, also for types alone."""
    paths = {module_of(path): path for path in MODULES if area_of(path) == package}
    graph: dict[str, set[str]] = {name: set() for name in paths}
    for name, path in paths.items():
        parts = path.relative_to(ROOT).with_suffix("").parts
        for node in nodes_of(path, ast.ImportFrom):
            if node.level:
                base = ".".join((*parts[: -node.level], *(node.module or "").split("."))).strip(".")
                for each in node.names:
                    found = f"{base}.{each.name}" if f"{base}.{each.name}" in paths else base
                    if found in paths and found != name:
                        graph[name].add(found)
    return graph


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """Some nodes that lead to each other in a circle; empty if there is none."""
    done: set[str] = set()

    def follow(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return trail[trail.index(name) :]
        if name not in done:
            for each in sorted(graph[name]):
                if found := follow(each, [*trail, name]):
                    return found
            done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := follow(name, []))), [])


def test_no_modules_import_each_other_in_a_circle():
    circles = {area: circle for area in AREAS if (circle := circle_in(imports_within(area)))}
    assert not circles


def rooms_of(package: str) -> dict[str, set[str]]:
    """Return, by sub-package and by module beside them, which others it imports."""
    rooms: dict[str, set[str]] = {}
    for name, imports in imports_within(package).items():
        room, *uses = (".".join(each.split(".")[:2]) for each in (name, *imports))
        rooms.setdefault(room, set()).update(set(uses) - {room})
    return rooms


def test_no_packages_import_each_other_in_a_circle():
    circles = {area: circle for area in AREAS if (circle := circle_in(rooms_of(area)))}
    assert not circles


def test_circle_in_returns_the_modules_of_an_import_circle_or_nothing():
    assert circle_in({"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set()}) == ["a", "b", "c"]
    assert not circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def is_pure(path: Path) -> bool:
    """Return whether its docstring says so, or that of a package above it, which counts for all modules in it."""
    packages = [parent / "__init__.py" for parent in path.relative_to(ROOT).parents]
    said = [ROOT / each for each in packages if (ROOT / each).is_file()]
    return any(SAYS_PURE.search(docstring_of(each)) for each in [path, *said])


def test_pure_modules_import_no_effects():
    pure = [path for path in MODULES if is_pure(path)]
    assert len(pure) >= LEAST_PURE
    assert not [found for path in pure for found in imports_among(path, OUTSIDE)]


def test_a_module_is_pure_if_it_or_its_package_says_so():
    assert is_pure(ROOT / "broker/groups/machine.py")
    assert is_pure(ROOT / "protocol/messages/fetch.py"), "its package's package says it"
    assert not is_pure(ROOT / "broker/groups/coordinator.py"), "which speaks of the pure groups only"


def test_modules_documented_as_nearly_pure_are_listed_and_import_no_effects():
    said = {short(path): docstring_of(path) for path in MODULES}
    assert {name for name, text in said.items() if re.search(r"\bPure\b(?![.:;])", text)} == NEARLY_PURE
    assert not [found for name in NEARLY_PURE for found in imports_among(ROOT / name, OUTSIDE)]


def test_no_module_raises_an_exception_object_kept_in_a_variable_or_attribute():
    """Each raise adds to the traceback of its exception, which keeps the frames, and all that these refer to, in
    memory.
    """
    assert not [found for path in MODULES for found in _kept_and_raised(path)]


def _kept_and_raised(path: Path) -> list[str]:
    [module] = nodes_of(path, ast.Module)
    made = [each for each in module.body if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call)]
    kept = {
        name.id for each in made for target in each.targets for name in ast.walk(target) if isinstance(name, ast.Name)
    }
    raised = [node.exc for node in nodes_of(path, ast.Raise) if isinstance(node.exc, ast.Name)]
    aliases = {
        pair[0].id
        for node in nodes_of(path, ast.Assign)
        for pair in _pairs_of(node)
        if isinstance(pair[0], ast.Name) and isinstance(pair[1], ast.Name) and pair[1].id in kept
    }
    return [at(path, each.lineno, f"raises {each.id}") for each in raised if each.id in kept | aliases]


def _pairs_of(node):
    """(target, value) of an assignment, tuples taken apart."""
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)]


def test_no_module_of_storage_awaits():
    asynchronous = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    paths = [path for path in MODULES if area_of(path) == "storage"]
    nodes = [(path, node) for path in paths for node in nodes_of(path, *asynchronous)]
    assert not [at(path, node.lineno, type(node).__name__) for path, node in nodes]


def test_only_effects_opens_files_and_sockets():
    doors = {"socket", "mmap", "fcntl", "shutil", "tempfile"}
    opening: list[str] = []
    for path in MODULES:
        if area_of(path) in {"protocol", "storage", "broker", "client"}:
            opening += imports_among(path, doors)
            names = [call.func for call in nodes_of(path, ast.Call) if isinstance(call.func, ast.Name)]
            opening += [at(path, name.lineno, "calls open") for name in names if name.id == "open"]
    assert not opening


STARTS_THREADS = ROOT / "effects" / "threads" / "starting.py"
THREADS = {"Thread", "Timer", "ThreadPoolExecutor", "to_thread"}


def test_only_one_module_starts_threads():
    """It raises a named error if the system has no thread left. What bench starts is for its own process alone."""
    places = [path for path in MODULES if area_of(path) != "bench" and path != STARTS_THREADS]
    calls = [(path, node.func) for path in places for node in nodes_of(path, ast.Call)]
    attributes = [(path, func.lineno, func.attr) for path, func in calls if isinstance(func, ast.Attribute)]
    names = [(path, func.lineno, func.id) for path, func in calls if isinstance(func, ast.Name)]
    assert not [at(path, line, f"calls {name}") for path, line, name in attributes + names if name in THREADS]


def _waits_for(node: ast.AST) -> bool:
    """Return whether asyncio.wait_for is named here, or imported."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "asyncio" and any(each.name == "wait_for" for each in node.names)
    of_asyncio = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "asyncio"
    return of_asyncio and node.attr == "wait_for"


def test_simulated_code_uses_asyncio_timeout_not_wait_for():
    """wait_for makes a task on Python 3.11 and none on 3.12: the same seed would give another history on each.

    On 3.11 it may also swallow a cancellation that comes together with the result. asyncio.timeout does neither.
    """
    paths = [path for path in MODULES if area_of(path) in {"effects", "storage", "broker", "client"}]
    paths += (ROOT / "tests" / "simulation").rglob("*.py")
    named = [path for path in paths if "wait_for" in text_of(path)]
    nodes = [(path, node) for path in named for node in nodes_of(path, ast.ImportFrom, ast.Attribute)]
    assert not [at(path, node.lineno, "uses asyncio.wait_for") for path, node in nodes if _waits_for(node)]


def test_no_module_reads_annotations_from_a_class_namespace():
    """Since Python 3.14 annotations are created on demand: vars(cls) has none of them."""
    constants = [(path, node) for path in MODULES for node in nodes_of(path, ast.Constant)]
    assert not [
        at(path, node.lineno, "use inspect.get_annotations")
        for path, node in constants
        if node.value == "__annotations__"
    ]


def test_no_file_or_function_is_longer_than_its_limit():
    long = []
    for path in [*MODULES, *TESTS]:
        lines = text_of(path).count("\n")
        if lines > MAX_FILE_LINES:
            long.append(at(path, lines, f"is longer than {MAX_FILE_LINES} lines"))
    for path in MODULES:
        for node in nodes_of(path, ast.FunctionDef, ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                long.append(at(path, node.lineno, f"{node.name} has {lines} lines"))
    assert not long


@functools.cache
def names_of_tests() -> list[tuple[Path, int, str]]:
    """(file, line, name) of each test."""
    return [(path, n, found[1]) for path, n, line in lines_of(TESTS) if (found := TEST.match(line))]


def test_no_test_name_is_longer_than_80_characters():
    named = names_of_tests()
    assert len(named) > 3000
    assert not [at(path, n, f"{name} has {len(name)} characters") for path, n, name in named if len(name) > MAX_NAME]


def test_no_test_name_begins_with_a_code_that_is_defined_nowhere():
    named = names_of_tests()
    assert not [at(path, n, name) for path, n, name in named if CODED.match(name)]


def test_every_module_has_a_docstring():
    assert not [short(path) for path in MODULES if not docstring_of(path)]


def test_no_module_has_a_vague_name():
    assert not [short(path) for path in MODULES if path.parent.name != "handlers" and VAGUE.search(path.stem)]


def test_every_package_is_named_in_pyproject():
    import tomllib

    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = set(setuptools["packages"])
    found = set()
    for path in MODULES:
        parts = path.parent.relative_to(ROOT).parts
        found.add(TOP_LEVEL.get(parts) or ".".join(parts if parts[0] == "fencepost" else ("fencepost", *parts)))
    assert packages | NOT_INSTALLED == found
    assert not packages & NOT_INSTALLED
    areas = {name.split(".")[1] for name in packages if "." in name}
    own = {"fencepost": "fencepost"} | {name: "/".join(parts) for parts, name in TOP_LEVEL.items()}
    assert setuptools["package-dir"] == own | {f"fencepost.{a}": a for a in areas}


def test_no_module_or_page_contains_a_local_path_or_a_tracker_number():
    paths = [*MODULES, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    paths = [path for path in paths if any(word in text_of(path).lower() for word in ("issue", str(ROOT).lower()))]
    found = [(path, found) for path in paths for found in ELSEWHERE.finditer(text_of(path))]
    assert not [at(path, text_of(path)[: match.start()].count("\n") + 1, match.group()) for path, match in found]


def test_every_file_in_the_repository_except_pictures_and_data_is_text():
    """The exceptions are a data directory of each earlier version, which later ones must open, and pictures of the
    console.
    """
    ignored = {line.strip("/*\n") for line in (ROOT / ".gitignore").read_text().splitlines()}
    files: list[Path] = []
    for folder, folders, names in os.walk(ROOT):
        hidden = {name for name in (*folders, *names) if name[0] == "."} if folder == str(ROOT) else set()
        folders[:] = set(folders) - hidden - ignored
        files += (Path(folder, name) for name in set(names) - hidden - ignored)
    assert len(files) > len(MODULES)
    binary = {path for path in files if b"\0" in path.read_bytes()}
    pictures = {path for path in binary if path.parent == ROOT / "docs" / "images" and path.suffix == ".png"}
    assert sum(path.stat().st_size for path in pictures) < 300_000
    assert not [short(path) for path in binary - pictures if path.parent != ROOT / "tests" / "data"]
