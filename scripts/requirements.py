"""Print what pyproject.toml requires, one line each: `requirements.py EXTRA...`.

The word `build` stands for the build system's own requirements and `project` for the ones that
every user gets. Extras that name other extras of the project are followed. Versions are so written
down once, and pip can install them before the project itself is built.
"""

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(groups: list[str]) -> list[str]:
    """Return the requirement lines of `groups`, each once, in the order met."""
    table = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    project = table["project"]
    own = re.compile(re.escape(project["name"]) + r"\[(.*)\]")
    lists = {
        "build": table["build-system"]["requires"],
        "project": project["dependencies"],
        **project["optional-dependencies"],
    }
    found: dict[str, None] = {}
    todo = list(groups)
    while todo:
        for line in lists[todo.pop(0)]:
            if match := own.fullmatch(line):
                todo += match[1].split(",")
            else:
                found[line] = None
    return list(found)


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
