import ast
import re
from pathlib import Path

import pytest

FFI_DIR = Path(__file__).parents[2] / "fabricio" / "_ffi"


def declarations() -> str:
    """All of cdef/ without comments."""
    texts = (path.read_text(encoding="utf-8") for path in sorted((FFI_DIR / "cdef").glob("*.h")))
    return re.sub(r"/\*.*?\*/", "", "\n".join(texts), flags=re.DOTALL)


def classes() -> dict[str, ast.ClassDef]:
    """Every class of the stub."""
    tree = ast.parse((FFI_DIR / "_native.pyi").read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def fields(node: ast.ClassDef) -> list[str]:
    """Names of a class's annotated attributes, in order."""
    return [
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]


def parameter(text: str) -> str:
    """Name of one C parameter."""
    found = re.search(r"(\w+)\s*$", text)
    assert found, text
    return found[1]


def test_functions_and_their_parameters_are_those_of_cdef() -> None:
    declared = {
        name: [] if parameters.strip() == "void" else [parameter(p) for p in parameters.split(",")]
        for name, parameters in re.findall(r"(\bfab_\w+)\(([^)]*)\);", declarations())
    }
    stubbed = {
        node.name: [argument.arg for argument in node.args.args[1:]]
        for node in classes()["Lib"].body
        if isinstance(node, ast.FunctionDef)
    }
    assert stubbed == declared


def test_constants_are_those_of_cdef() -> None:
    declared = re.findall(r"\b(FAB_\w+) =", declarations())
    assert sorted(fields(classes()["Lib"])) == sorted(declared)


STRUCTS = re.findall(r"struct (fab_\w+) \{(.*?)\};", declarations(), flags=re.DOTALL)


@pytest.mark.parametrize(("name", "body"), STRUCTS, ids=[name for name, _ in STRUCTS])
def test_fields_are_those_of_cdef(name: str, body: str) -> None:
    declared = [
        parameter(re.sub(r"\[\d+\]", "", field))
        for statement in body.split(";")
        for field in statement.split(",")
        if field.strip()
    ]
    stub_name = "".join(part.capitalize() for part in name.split("_"))
    assert fields(classes()[stub_name]) == declared
