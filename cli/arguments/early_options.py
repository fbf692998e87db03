"""Options before the command: `fencepost -b HOST:PORT topic list` is `fencepost topic list -b HOST:PORT`.

Every option belongs to one command. So options before the command's name are moved after it, if that command has all of
them; otherwise the arguments stay unchanged, and click refuses them.
"""

from collections.abc import Sequence

import click


def move_options(ctx: click.Context, group: click.Group, args: Sequence[str]) -> list[str]:
    """Return the arguments with the options moved after the command; unchanged if no command has all of them."""
    return _move(ctx, group, args, ()) or list(args)


def _move(ctx: click.Context, group: click.Group, args: Sequence[str], options: Sequence[str]) -> list[str] | None:
    """Return the arguments with the options moved after the command of this group; None if no command has them.
    options: those that came before `args`.
    """
    for number, word in enumerate(args):
        command = group.get_command(ctx, word) if word in group.list_commands(ctx) else None
        if command is None:
            continue
        before, rest = (*options, *args[:number]), args[number + 1 :]
        found = None
        with command.make_context(word, [], parent=ctx, resilient_parsing=True) as inner:
            if isinstance(command, click.Group):
                found = _move(inner, command, rest, before)
            elif _are_options(inner, before):
                found = [*before, *rest]
        if found is not None:
            return [word, *found]
    return None


def _are_options(ctx: click.Context, words: Sequence[str]) -> bool:
    """Return whether the command has each of these options, and the last one has its value among the words."""
    params = [each for each in ctx.command.get_params(ctx) if isinstance(each, click.Option)]
    options = {name: each for each in params for name in (*each.opts, *each.secondary_opts)}
    position = 0
    while position < len(words):
        name, has_value, _ = words[position].partition("=")
        option = options.get(name if name.startswith("--") else words[position])
        if option is None:
            return False
        takes_none = option.is_flag or option.count
        position += 1 if takes_none or (has_value and name.startswith("--")) else 1 + option.nargs
    return position == len(words)
