"""Scripts that run a trainer: their own options, then "--", then the flags of the trainer."""
import pathlib

SKIPPED = 77  # The exit status that ctest takes for a skipped case.


def add_trainer_options(parser):
    add = parser.add_argument
    add("--program", type=pathlib.Path, required=True, help="the trainer")
    add("--work", type=pathlib.Path, required=True, help="folder for what runs leave; emptied first")
    add("--data", type=pathlib.Path, action="append", default=[], help="what the trainer reads")


def parse(parser, words):
    """The options, with `flags` among them."""
    # argparse gives words behind "--" to the first positional argument that takes many.
    border = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:border])
    options.flags = words[border + 1:]
    return options


def tell_missing_data(options):
    """Whether data is not on this machine; says which."""
    missing = [path for path in options.data if not path.exists()]
    for path in missing:
        print(f"skipped: {path} is not on this machine")
    return bool(missing)
