"""docs/cli.md, man pages and completions are those of the command, and the tools that read them accept them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from harness import ROOT, Swath

COMMANDS = ("info", "preview", "stats", "compare", "validate", "convert", "dump", "bench", "devices", "completions")


@pytest.fixture(scope="module")
def made(swath: Swath, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that `swath generate` writes."""
    folder = tmp_path_factory.mktemp("reference")
    for what in ("markdown", "man", "completions"):
        run = swath.run("generate", what, folder / what)
        assert run.ok, run.stderr
    return folder


def needs(tool: str) -> str:
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"{tool} is not installed")
    return path


def test_the_page_is_current(made: Path) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert page == (made / "markdown" / "cli.md").read_text(), "docs/cli.md is stale: run `make cli-docs`"


def test_the_page_has_a_section_for_every_command(made: Path) -> None:
    page = (made / "markdown" / "cli.md").read_text()
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert headings[: len(COMMANDS)] == [f"swath {name}" for name in COMMANDS]
    for heading in headings:
        assert f"(#{heading.lower().replace(' ', '-')})" in page, f"{heading} is not in the contents"


def test_man_pages_are_valid(made: Path) -> None:
    pages = sorted(path.name for path in (made / "man").iterdir())
    assert pages == sorted(["swath.1", *(f"swath-{name}.1" for name in COMMANDS)])
    groff = needs("groff")
    for page in pages:
        done = subprocess.run(
            [groff, "-man", "-ww", "-Tutf8", "-Kutf8", "-P-cbou", made / "man" / page], capture_output=True, text=True
        )
        assert done.returncode == 0 and done.stderr == "", f"{page}: {done.stderr}"
        assert "EXIT STATUS" in done.stdout, page


def completed(made: Path, shell: str, line: str) -> list[str]:
    """The words that a shell offers at the end of a command line."""
    words = line.split(" ")
    if shell == "bash":
        script = (
            f"source {made}/completions/swath; COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); "
            f"COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; COMP_POINT={len(line)}; "
            f"_swath swath '{words[-1]}' '{words[-2]}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
        argv = [needs("bash"), "--norc", "--noprofile", "-c", script]
    else:
        script = f"source {made}/completions/swath.fish; complete -C '{line}'"
        argv = [needs("fish"), "--no-config", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [word.split("\t")[0].strip() for word in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_shells_complete_commands_options_and_values(made: Path, shell: str) -> None:
    assert completed(made, shell, "swath con") == ["convert"]
    assert "--max-memory" in completed(made, shell, "swath bench --max")
    assert {"auto", "cpu", "cuda"} <= set(completed(made, shell, "swath stats --device "))
    assert "generate" not in completed(made, shell, "swath ")


def test_zsh_completes_commands_and_options(made: Path) -> None:
    zsh = needs("zsh")
    done = subprocess.run([zsh, "-n", made / "completions" / "_swath"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    # A terminal of zsh's own, in which the tab key is pressed.
    script = f"""
zmodload zsh/zpty
zpty shell {zsh} -f -i
send() {{ zpty -w shell "$1" }}
send 'PROMPT=; fpath=({made}/completions $fpath); autoload -Uz compinit; compinit -u -D'
send 'bindkey "^I" complete-word; echo READ""Y'
zpty -r -m shell out '*READY*'
zpty -w -n shell $'swath bench --max-rem\\t'
sleep 2
zpty -r -t shell out '*max-remote-*'
print -r -- "$out"
zpty -d shell
"""
    done = subprocess.run([zsh, "-f", "-c", script], capture_output=True, text=True, timeout=60)
    assert "--max-remote-" in done.stdout, done.stdout + done.stderr


def test_the_command_prints_the_same_scripts(swath: Swath, made: Path) -> None:
    for shell, name in (("bash", "swath"), ("zsh", "_swath"), ("fish", "swath.fish")):
        assert swath.run("completions", shell).stdout == (made / "completions" / name).read_text()
    assert swath.run("completions", "tcsh").code == 2


def test_install_puts_everything_in_its_place(folder: Path) -> None:
    """The lines of `make install`, with a binary that is built already."""
    done = subprocess.run(
        ["make", "-s", "install", "PREFIX=/usr", f"DESTDIR={folder}", "-o", "build"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for name in (
        "bin/swath",
        "share/man/man1/swath.1",
        "share/man/man1/swath-bench.1",
        "share/bash-completion/completions/swath",
        "share/zsh/site-functions/_swath",
        "share/fish/vendor_completions.d/swath.fish",
    ):
        assert (folder / "usr" / name).is_file(), name
