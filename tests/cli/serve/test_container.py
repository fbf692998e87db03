"""What the Dockerfile does, step by step, without an engine: a wheel in an environment of its own, and another user.

Not done here is what needs an engine or a registry: the layers, and the packages that `pip wheel` fetches (`make dist`
installs those). As root the program runs as the image's user, which may read everything, or it could not read this
Python, and may write to its own folders alone.
"""

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
from pathlib import Path
from typing import NamedTuple

import installed
import pytest
from deployment_files import DATA, HUNG_S, ROOT, address_of, list_after

pytestmark = pytest.mark.long
AS_USER = "setpriv --reuid={0} --regid={0} --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search"


class Image(NamedTuple):
    """What stands for the container image. user: its user, or the one of this test if that is not root.

    root: the folder in which the image's folders are here.
    """

    text: str
    root: Path
    python: Path
    user: int

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment in which the image runs a program: its ENV lines, and no home folder."""
        return {
            "PATH": str(self.python.parent),
            "HOME": "/nonexistent",
            **dict(re.findall(r"^ENV (\S+?)=(\S+)$", self.text, re.M)),
        }

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start the image's entry point as its user, with these arguments. Paths in them are those of the image."""
        changed = [re.sub(r"(0\.0\.0\.0|127\.0\.0\.1):909\d", "127.0.0.1:0", self.placed(word)) for word in words]
        entry = self.python.parent / list_after("ENTRYPOINT", self.text)[0]
        as_user = shlex.split(AS_USER.format(self.user)) if self.user != os.getuid() else []
        if as_user:
            as_user[0] = shutil.which("setpriv") or as_user[0]
        return subprocess.Popen(
            [*as_user, str(entry), *changed],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env=self.environment | environment,
        )

    def run(self, *words: str, given: str = "", **environment: str) -> tuple[int, str]:
        """Run the entry point to its end. Return its exit status, and its output with its errors."""
        program = self.start(*words, **environment)
        out, errors = program.communicate(given, HUNG_S)
        return program.returncode, out + errors

    def placed(self, word: str) -> str:
        """Replace a path in the image's folders by the path that this test uses for it."""
        return re.sub(r"^/(var|backups)\b", rf"{self.root}/\1", word)


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """What the steps of the Dockerfile make: an environment with the wheel, and the data folder with its owner."""
    text, folder = (ROOT / "Dockerfile").read_text(), tmp_path
    python = installed.environment(folder / "prefix", installed.wheel(folder / "build"))
    found = re.search(r"useradd --uid (\d+) .* (\S+) \\$", text, re.MULTILINE)
    assert found is not None
    assert re.search(rf"^USER {found[2]}$", text, re.MULTILINE)
    user = int(found[1]) if os.getuid() == 0 else os.getuid()
    made = Image(text, folder / "root", python, user)
    (folder / "root" / "var" / "lib").mkdir(parents=True)
    step = re.search(r"(install -d .*)$", text, re.MULTILINE)
    assert step is not None
    words = [made.placed(str(user) if word == found[2] else word) for word in shlex.split(step[1])]
    subprocess.run(words, check=True)
    return made


def test_the_container_image_serves_as_its_user_and_ends_with_0_at_its_stopsignal(image):
    """Its health check says whether it serves, and only its user can read its data."""
    words = ("user", "add", "alice", "--data-dir", DATA, "--password-stdin")
    assert image.run(*words, given="correct horse\n")[0] == 0
    broker = image.start(*list_after("CMD", image.text))
    try:
        inside = address_of(broker)  # of the listener that asks for no login
        assert Path(f"/proc/{broker.pid}").stat().st_uid == image.user
        name, *health = list_after(re.search(r"HEALTHCHECK .* CMD", image.text)[0], image.text)
        assert name == "fencepost"
        assert image.run(*health, FENCEPOST_BOOTSTRAP=inside)[0] == 0
        status, text = image.run("backup", DATA, "/backups/monday")
        assert status == 0, text
        broker.send_signal(signal.Signals[re.search(r"^STOPSIGNAL (\S+)$", image.text, re.MULTILINE)[1]])
        assert broker.wait(HUNG_S) == 0
        assert image.run(*health, FENCEPOST_BOOTSTRAP=inside)[0] == 1
    finally:
        broker.kill()
        broker.communicate()
    data = Path(image.placed(DATA))
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert {path.stat().st_uid for path in (data, *data.rglob("*"))} == {image.user}
