"""The rules of the house that no other tool checks. STYLE.md says them in words; each has a planted offence below."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
PARAMETERS_MAX = 5
POSITIONAL_MAX = 3

# The public verbs: their keywords are the product.
WIDE = {"put", "put_one", "put_blocks", "get_into", "get_blocks", "connect", "aconnect"}
ENGINES = {"vllm": "connectors/vllm.py", "sglang": "connectors/sglang.py", "lmcache": "connectors/lmcache.py"}
HEAVY = {"torch", "numpy", "transformers", "safetensors", "gguf", "openai", *ENGINES}
BANNED_NAME = re.compile(r"(^|_)(utils?|helpers?|common|misc)(_|$)|^_*base_|_v\d+$", re.IGNORECASE)
SHORTENED = re.compile(
    "cfg|conf|ctx|msg|req|resp|res|buf|ptr|idx|num|cnt|addr|mgr|conn|srv|tmp|obj|val|fn|cb|hdr|pkt|alloc|dealloc|src|dst"
    "|dest|sz|fmt|prev|curr|cur|params?|pos|desc|impl|util|attrs?|elems?|evt"
)
REGISTRIES = [  # in two parts, so that this file does not name them
    f"{name}.{top}"
    for top, names in {
        "org": ("pypi", "pythonhosted", "debian", "npmjs", "download.pytorch", "proxy.golang"),
        "com": ("npmjs",),
        "co": ("huggingface",),
        "io": ("crates",),
    }.items()
    for name in names
]
# Views of bytes as characters and the socket calls' own address type name no memory; everything else does.
HARMLESS_CASTS = re.compile(r"reinterpret_cast<(const )?(char|unsigned char|std::byte|sockaddr)\s*\*>")


@dataclass(frozen=True)
class Source:
    """One file: where it lies below the root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def bare(self) -> str:
        """C++ without comments and literals; every line stays where it was."""
        pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
        return re.sub(pattern, lambda found: "\n" * found.group().count("\n"), self.text, flags=re.DOTALL)

    @property
    def is_python(self) -> bool:
        return self.path.endswith((".py", ".pyi"))

    @property
    def is_native(self) -> bool:
        return self.path.endswith((".cpp", ".hpp"))

    @property
    def is_ours(self) -> bool:
        return self.path.startswith("src/") and self.path.endswith(".py")

    def at(self, line: int, what: str) -> str:
        return f"{self.path}:{line}: {what}"


Rule = Callable[[Source], Iterator[str]]


def functions_of(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def files_are_short(source: Source) -> Iterator[str]:
    if source.is_python or source.is_native:
        count = source.text.count("\n")
        if count > FILE_LINES_MAX:
            yield source.at(1, f"{count} lines, at most {FILE_LINES_MAX}: split it by what it is about")


def python_functions_are_short(source: Source) -> Iterator[str]:
    if source.is_python:
        for node in functions_of(source):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                yield source.at(node.lineno, f"{node.name} has {count} lines, at most {FUNCTION_LINES_MAX}")


def native_functions_are_short(source: Source) -> Iterator[str]:
    if not source.is_native:
        return
    scopes: list[tuple[bool, int, str]] = []  # is a namespace or type, line of its head, head
    head_start = 0
    for found in re.finditer(r"[{};]", source.bare):
        head = source.bare[head_start : found.start()]
        line = source.bare.count("\n", 0, head_start + len(head) - len(head.lstrip())) + 1
        head_start = found.end()
        if found.group() == "{":
            is_scope = bool(re.search(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$", head))
            scopes.append((is_scope, line, " ".join(head.split())))
        elif found.group() == "}" and scopes:
            is_scope, start, name = scopes.pop()
            end = source.bare.count("\n", 0, found.start()) + 1
            if not is_scope and all(outer[0] for outer in scopes) and end - start + 1 > FUNCTION_LINES_MAX:
                yield source.at(start, f"{name[:60]} has {end - start + 1} lines, at most {FUNCTION_LINES_MAX}")


def functions_take_few_parameters(source: Source) -> Iterator[str]:
    if not source.is_ours:
        return
    methods = {id(item) for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef) for item in node.body}
    for node in functions_of(source):
        is_command = any(
            "command" in ast.unparse(mark) or "option" in ast.unparse(mark) for mark in node.decorator_list
        )
        is_static = any(ast.unparse(mark) == "staticmethod" for mark in node.decorator_list)
        if is_command or node.name in WIDE:
            continue
        own = 1 if id(node) in methods and not is_static else 0
        positional = len(node.args.posonlyargs) + len(node.args.args) - own
        if positional + len(node.args.kwonlyargs) > PARAMETERS_MAX:
            yield source.at(node.lineno, f"{node.name} has more than {PARAMETERS_MAX} parameters: give them a struct")
        elif positional > POSITIONAL_MAX:
            yield source.at(node.lineno, f"{node.name} has more than {POSITIONAL_MAX} positional parameters: use `*`")


def names_say_something(source: Source) -> Iterator[str]:
    stem = Path(source.path).stem
    if BANNED_NAME.search(stem) or any(BANNED_NAME.search(part) for part in Path(source.path).parts[:-1]):
        yield source.at(1, "a name that says nothing: name the idea")
    if source.is_python and not source.path.startswith("tests/"):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and BANNED_NAME.search(
                node.name
            ):
                yield source.at(node.lineno, f"{node.name} says nothing: name the idea")


def public_names_are_whole_words(source: Source) -> Iterator[str]:
    if not source.is_ours or source.path.removeprefix("src/moonpool/") in ENGINES.values():
        return  # an adapter's names are those of the engine's interface
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            names = [node.name, *(item.arg for item in [*node.args.args, *node.args.kwonlyargs])]
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            names = [re.sub(r"(?<!^)(?=[A-Z])", "_", node.name)]
        else:
            continue
        for name in names:
            if short := [word for word in name.lower().split("_") if SHORTENED.fullmatch(word)]:
                yield source.at(node.lineno, f"{name}: write {', '.join(short)} out")


def only_config_reads_the_environment(source: Source) -> Iterator[str]:
    if source.is_ours and not source.path.startswith("src/moonpool/config"):
        for node in ast.walk(source.tree):
            read = isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv", "os.environb"}
            taken = isinstance(node, ast.ImportFrom) and node.module == "os"
            if read or (taken and {"environ", "getenv"} & {item.name for item in node.names}):
                yield source.at(node.lineno, "only moonpool.config reads the environment")
    elif source.is_native and not source.path.startswith("native/tests/"):
        for number, line in enumerate(source.bare.splitlines(), 1):
            if re.search(r"\b(secure_)?getenv\b", line):
                yield source.at(number, "only moonpool.config reads the environment")


def engines_stay_in_their_connector(source: Source) -> Iterator[str]:
    if not source.is_ours:
        return
    inside = {id(node) for function in functions_of(source) for node in ast.walk(function)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            roots = {item.name.split(".")[0] for item in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            roots = {node.module.split(".")[0]}
        else:
            continue
        for root in roots & set(HEAVY):
            home = ENGINES.get(root)
            at_home = home is not None and source.path.endswith(home)
            if home and not at_home:
                yield source.at(node.lineno, f"only {home} imports {root}")
            elif not at_home and not source.path.endswith(tuple(ENGINES.values())) and id(node) not in inside:
                yield source.at(node.lineno, f"import {root} inside a function: the base install has no {root}")


def broad_catches_act(source: Source) -> Iterator[str]:
    if not source.is_python:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler):
            kinds = ast.unparse(node.type) if node.type else "BaseException"
            silent = all(isinstance(item, ast.Pass | ast.Continue | ast.Constant) for item in node.body)
            if re.search(r"\b(Base)?Exception\b", kinds) and silent:
                yield source.at(node.lineno, "a broad catch that says nothing: log and count it, or catch less")
        elif isinstance(node, ast.Call) and re.fullmatch(
            r"(contextlib\.)?suppress\(.*\bException\b.*\)", ast.unparse(node)
        ):
            yield source.at(node.lineno, "suppress(Exception) hides everything: name what may happen")


def native_owns_by_type(source: Source) -> Iterator[str]:
    if not source.is_native:
        return
    for number, line in enumerate(source.bare.splitlines(), 1):
        allowed = re.compile(r"=\s*delete\b|\boperator\s+(new|delete)\b")
        if re.search(r"\b(new|delete)\b|\b(malloc|calloc|realloc)\s*\(", allowed.sub("", line)):
            yield source.at(number, "naked new or delete: let a type own it")
        if re.match(r"\s*#\s*define\b", line) and "DOCTEST_CONFIG" not in line:
            yield source.at(number, "a macro: use constexpr, a template or a function")


def raw_addresses_stay_in_memory(source: Source) -> Iterator[str]:
    if not source.is_native or source.path.startswith(("native/io/memory.", "native/bind/")):
        return
    for number, line in enumerate(source.bare.splitlines(), 1):
        if re.search(r"\breinterpret_cast\b|\bu?intptr_t\b", HARMLESS_CASTS.sub("", line)):
            yield source.at(number, "raw addresses belong to native/io/memory.*")


def core_is_pure(source: Source) -> Iterator[str]:
    if not source.path.startswith("native/core/"):
        return
    impure = (
        r"#\s*include\s*<(chrono|thread|mutex|fstream|iostream|cstdio|filesystem|ctime|sys/\w+\.h|unistd\.h|\w+\.h)>"
    )
    for number, line in enumerate(source.text.splitlines(), 1):
        found = re.search(impure, line)
        if found and not found.group(1).endswith("intrin.h"):
            yield source.at(number, f"native/core is pure: no <{found.group(1)}>")


def registries_are_not_named(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        for host in REGISTRIES:
            if host in line.lower():
                yield source.at(number, f"names the host {host}: say which registry in words")


def assertions_are_not_timed(source: Source) -> Iterator[str]:
    if source.path.startswith("tests/") and source.path.endswith(".py"):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Assert) and any(isinstance(item, ast.Call) for item in ast.walk(node)):
                clock = re.search(r"\btime\.(time|monotonic|perf_counter)\w*\(\) - ", ast.unparse(node))
                if clock:
                    yield source.at(node.lineno, "a timed assertion: measure in `moonpool bench`, not in a test")


RULES: list[Rule] = [
    files_are_short,
    python_functions_are_short,
    native_functions_are_short,
    functions_take_few_parameters,
    names_say_something,
    public_names_are_whole_words,
    only_config_reads_the_environment,
    engines_stay_in_their_connector,
    broad_catches_act,
    native_owns_by_type,
    raw_addresses_stay_in_memory,
    core_is_pure,
    registries_are_not_named,
    assertions_are_not_timed,
]


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    """Every text file that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    suffixes = {".py", ".pyi", ".cpp", ".hpp", ".md", ".toml", ".txt", ".json", ".cmake", ".svg", ".css", ".sh", ""}
    files = [ROOT / name for name in names if Path(name).suffix in suffixes]
    return [Source(str(path.relative_to(ROOT)), path.read_text()) for path in files if path.is_file()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_holds_in_every_file(rule: Rule, sources: list[Source]) -> None:
    found = [finding for source in sources for finding in rule(source)]
    assert not found, "\n" + "\n".join(found)


LONG_BODY = "    x = 1\n" * FUNCTION_LINES_MAX
PLANTED: list[tuple[Rule, str, str]] = [
    (files_are_short, "src/moonpool/a.py", "\n" * (FILE_LINES_MAX + 1)),
    (python_functions_are_short, "src/moonpool/a.py", "def run():\n" + LONG_BODY),
    (native_functions_are_short, "native/io/a.cpp", "namespace a {\nint f(int b) {\n" + "b++;\n" * 70 + "}\n}\n"),
    (
        native_functions_are_short,
        "native/io/a.hpp",
        "struct A {\n void f() const {\n" + "if (b) { }\n" * 70 + "}\n};\n",
    ),
    (functions_take_few_parameters, "src/moonpool/a.py", "def run(a, *, b, c, d, e, f): ...\n"),
    (functions_take_few_parameters, "src/moonpool/a.py", "class A:\n    def run(self, a, b, c, d): ...\n"),
    (names_say_something, "src/moonpool/utils.py", ""),
    (names_say_something, "src/moonpool/a.py", "class A:\n    def load_v2(self): ...\n"),
    (public_names_are_whole_words, "src/moonpool/a.py", "def read_msg(): ...\n"),
    (public_names_are_whole_words, "src/moonpool/a.py", "def read(*, buf): ...\n"),
    (only_config_reads_the_environment, "src/moonpool/a.py", "import os\nos.environ['A']\n"),
    (only_config_reads_the_environment, "src/moonpool/a.py", "from os import getenv\n"),
    (only_config_reads_the_environment, "native/io/a.cpp", 'auto a = std::getenv("A");\n'),
    (engines_stay_in_their_connector, "src/moonpool/pool/a.py", "def f():\n    import vllm\n"),
    (engines_stay_in_their_connector, "src/moonpool/pool/a.py", "from torch import Tensor\n"),
    (broad_catches_act, "src/moonpool/a.py", "try:\n    f()\nexcept Exception:\n    pass\n"),
    (broad_catches_act, "src/moonpool/a.py", "with contextlib.suppress(Exception):\n    f()\n"),
    (native_owns_by_type, "native/io/a.cpp", "auto* a = new int;\n"),
    (native_owns_by_type, "native/io/a.cpp", "#define A 1\n"),
    (raw_addresses_stay_in_memory, "native/io/a.cpp", "auto a = reinterpret_cast<std::uint64_t*>(b);\n"),
    (raw_addresses_stay_in_memory, "native/core/a.cpp", "std::uintptr_t a = 0;\n"),
    (core_is_pure, "native/core/a.cpp", "#include <chrono>\n"),
    (core_is_pure, "native/core/a.cpp", "#include <sys/mman.h>\n"),
    (registries_are_not_named, "Makefile", "pip install --index-url https://" + REGISTRIES[0] + "/simple\n"),
    (assertions_are_not_timed, "tests/a.py", "assert time.monotonic() - started < 1\n"),
]


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_rule_finds_a_planted_offence(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))


def test_every_rule_has_a_planted_offence() -> None:
    assert {rule.__name__ for rule in RULES} == {rule.__name__ for rule, _, _ in PLANTED}


def test_harmless_native_code_passes() -> None:
    text = '// new here\nA(const A&) = delete;\nauto b = reinterpret_cast<const char*>(c);\nauto d = "delete it";\n'
    source = Source("native/io/a.cpp", text)
    assert [finding for rule in RULES for finding in rule(source)] == []


def test_every_dependency_has_its_line_in_the_docs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project.get("dependency-groups", {})
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    asked += [item for extra in project["project"].get("optional-dependencies", {}).values() for item in extra]
    asked += [item for group in groups.values() for item in group if isinstance(item, str)]
    names = {re.split(r"[<>=!~\[; ]", item)[0] for item in asked}
    documented = set(re.findall(r"^\| `([\w.-]+)`", (ROOT / "docs/dependencies.md").read_text(), re.MULTILINE))
    assert names - documented == set()


def test_base_install_stays_small_and_unbounded() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert len(dependencies) <= 5
    assert [item for item in dependencies if re.search(r"<|==|~=", item)] == []


def test_every_room_is_a_package() -> None:
    """Else import-linter does not see what lies in it."""
    folders = {path.parent for path in (ROOT / "src/moonpool").rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []
