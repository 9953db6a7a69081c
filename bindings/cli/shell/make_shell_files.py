#!/usr/bin/env python3
"""Writes the completions and manual pages of the command, where shells and man look below a folder `share`.

  make_shell_files.py COMMAND SHARE
"""
import pathlib
import sys

import completions
import help_tables
import manual_pages


def files_of(program):
    return {"bash-completion/completions/spillway": completions.bash(program),
            "zsh/site-functions/_spillway": completions.zsh(program),
            "fish/vendor_completions.d/spillway.fish": completions.fish(program),
            **{f"man/man1/{name}": text for name, text in manual_pages.pages(program).items()}}


def main(arguments):
    command, share = arguments
    files = files_of(help_tables.read_program(command))
    share = pathlib.Path(share)
    for old in (share / "man/man1").glob("spillway*.1"):  # Of commands that are no more.
        old.unlink()
    for name, text in files.items():
        path = share / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
