"""Folders: where the lab's data is found."""

import ast
import tomllib
from pathlib import Path

import pytest

from lab.core import paths


def test_a_checkout_is_known_by_its_project_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_HOME", raising=False)
    top = Path(paths.__file__).resolve().parents[2]
    if (top / "pyproject.toml").is_file():
        assert paths.top_dir() == top
    assert (paths.data_folder("ansible") / "playbooks" / "kernel_build.yml").is_file()


def test_site_packages_is_no_checkout_though_it_has_a_folder_called_ansible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAB_HOME", raising=False)
    (tmp_path / "ansible").mkdir()
    (tmp_path / "lab").mkdir()
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "lab" / "core" / "paths.py"))
    assert paths.top_dir() == tmp_path / "lab" / "_data"
    (tmp_path / "pyproject.toml").touch()
    assert paths.top_dir() == tmp_path


def test_the_environment_names_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_HOME", "/somewhere")
    assert paths.data_folder("machines") == Path("/somewhere/machines")


def test_the_home_of_nobody_is_a_name() -> None:
    assert paths.expanded("~/linux") == Path.home() / "linux"
    assert paths.expanded("~nosuchuser-here/linux") == Path("~nosuchuser-here/linux")


# --- the wheel


def _data_read(source: str) -> set[str]:
    """The paths below data folders that a module reads, as patterns: what is not constant is `*`."""

    def pattern(node: ast.AST) -> str | None:
        match node:
            case ast.Call(func=function, args=[argument]) if ast.unparse(function) in (
                "data_folder",
                "paths.data_folder",
            ):
                return pattern(argument)
            case ast.BinOp(left=left, op=ast.Div(), right=right) if (start := pattern(left)) is not None:
                return f"{start}/{pattern(right)}"
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(pattern(part) or "*" for part in parts)
            case ast.Name() | ast.Attribute() | ast.FormattedValue():
                return "*"
        return None

    tree = ast.parse(source)
    chains = (node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.BinOp))
    found = {node: path for node in chains if (path := pattern(node)) and "data_folder(" in ast.unparse(node)}
    inner = {child for node in found for child in ast.iter_child_nodes(node)}
    return {path for node, path in found.items() if node not in inner}


def test_the_wheel_has_every_file_of_the_data_folders_that_the_code_reads() -> None:
    top = Path(paths.__file__).resolve().parents[2]
    packed = tomllib.loads((top / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    included = packed["force-include"]
    assert all(target == f"lab/_data/{source}" for source, target in included.items())
    modules = [path for path in (top / "lab").rglob("*.py") if path.name != "paths.py" and "_data" not in path.parts]
    read = set().union(*(_data_read(path.read_text()) for path in modules))
    assert len(read) > 20
    for pattern in sorted(read):
        files = [str(path.relative_to(top)) for path in top.glob(pattern)]
        assert files, f"the lab reads {pattern}, and there is none"
        for file in files:
            assert any(f"{file}/".startswith(f"{source}/") for source in included), f"{file} is not in the wheel"
