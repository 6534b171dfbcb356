"""Names that processes hold by locks: who lives is never dead, and who ended is dead at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import psutil  # type: ignore[import-untyped]  # pyright: ignore[reportMissingModuleSource]
import pytest
from attrs import define, field, frozen

from legation.effects import FindDead, HoldName, Program
from legation_host import names as names_module
from legation_host import open_host
from legation_host.file_locks import FileLock, LockFolder
from legation_host.names import NAMES, STALE_SECONDS, NamePlace, Names, place_beside, place_of_user

from ..engines import Cluster
from .host_units import BACKENDS, Lines, run

HOLDER: Final = Path(__file__).with_name("name_holder.py")
ODD: Final = ["..", "a/b", "\0", "é\U0001f600", "\udcff", "x" * 5_000, "Ada", "ada", ""]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    path.touch(0o600)
    return path


@define
class Bench:
    """Names beside one file, of as many processes as one likes; asked one after the other."""

    path: Path
    lines: Lines

    def open(self) -> Names:
        return Names("main", place_beside(str(self.path)), self.lines.write)

    @property
    def folder(self) -> Path:
        return self.path.with_name(f"{self.path.name}-locks")

    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir())


@pytest.fixture
def bench(file: Path) -> Bench:
    return Bench(file, Lines())


def ask(effect: Any) -> Program[Any]:
    return (yield effect)


def hold(names: Names, name: str) -> str:
    return anyio.run(names.hold, name)


def find(names: Names, *wanted: str) -> tuple[str, ...]:
    return anyio.run(names.find_dead, wanted)


# --- The living and the dead


@BACKENDS
def test_a_name_is_dead_when_its_holder_has_closed_it_and_stays_so(
    backend: str, bench: Bench
) -> None:
    async def main() -> None:
        one, other, third = bench.open(), bench.open(), bench.open()
        assert await one.hold("one") == await other.hold("other") == await third.hold("third") != ""
        assert await one.hold("one") == await other.hold("other")
        assert await one.find_dead(("one", "other", "third")) == ()
        other.close()
        for _ in range(2):
            for looking in (one, third):
                found = await looking.find_dead(("one", "other", "third", "never"))
                assert found == ("other",)
        one.close()
        third.close()

    run(backend, main)
    assert bench.lines == []


def test_names_of_any_characters_are_told_apart(bench: Bench) -> None:
    with closing(bench.open()) as one:
        other = bench.open()
        for name in ODD:
            assert hold(other, name)
        assert find(one, *ODD) == ()
        other.close()
        assert find(one, *ODD, "ADA") == tuple(ODD)
        assert len(bench.files()) == len(ODD)


def test_one_question_is_about_some_hundred_names(bench: Bench) -> None:
    many = [f"n{number}" for number in range(NAMES)]
    with closing(bench.open()) as one:
        other = bench.open()
        hold(other, "last")
        other.close()
        assert find(one, *many[1:], "last") == ("last",)
        assert find(one, *many, "last") == ()


def test_a_database_in_memory_has_no_place() -> None:
    lines = Lines()
    with closing(Names("main", None, lines.write)) as names:
        assert hold(names, "a") == ""
        assert find(names, "a", "b") == ()
    assert lines == []


def test_nothing_is_held_any_more_after_the_end(bench: Bench) -> None:
    names = bench.open()
    names.close()

    assert hold(names, "a") == ""
    assert not bench.folder.exists()
    names.close()


# --- Processes


class Holder:
    """A process that holds a name, perhaps one that sees no process of ours."""

    def __init__(self, path: Path, name: str, *more: str, apart: bool = False) -> None:
        self.apart = apart
        own = ("unshare", "--pid", "--fork", "--mount-proc") if apart else ()
        self.process = subprocess.Popen(
            [*own, sys.executable, HOLDER, path, name, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: dict[str, Any] = json.loads(self.line())

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def find(self, *names: str) -> list[str]:
        assert self.process.stdin is not None
        print(json.dumps(names), file=self.process.stdin, flush=True)
        dead: list[str] = json.loads(self.line())
        return dead

    def kill(self) -> None:
        """Kill it, and return when it is gone; `unshare` waits for the one that it started."""
        own = psutil.Process(self.process.pid)
        for one in own.children() if self.apart else [own]:
            one.kill()
        self.close()

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()


@contextmanager
def holding(*args: Any, **options: Any) -> Generator[Holder]:
    holder = Holder(*args, **options)
    try:
        yield holder
    finally:
        if holder.process.poll() is None:
            holder.kill()
        else:
            holder.close()


def namespaces_work() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return bool(shutil.which("unshare")) and subprocess.run(command, check=False).returncode == 0


def test_a_killed_process_is_dead_at_once(bench: Bench) -> None:
    with closing(bench.open()) as names, holding(bench.path, "h-7-aa") as holder:
        assert hold(names, "mine") == holder.said["place"] != ""
        assert find(names, "h-7-aa") == ()
        holder.kill()
        assert find(names, "h-7-aa") == ("h-7-aa",)


def test_processes_of_two_containers_do_not_take_each_other_for_dead() -> None:
    """Each has a numbering of processes of its own; where that cannot be had, the ids are forged.

    Nothing looks at an id: it is a part of the name, and both have the same there.
    """
    apart = namespaces_work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.db")
        path.touch()
        one, other = "host-2-aa", "host-2-bb"
        with (
            holding(path, one, apart=apart) as here,
            holding(path, other, apart=apart) as there,
        ):
            if apart:
                assert here.said["pid"] == there.said["pid"] < 9
            assert here.said["place"] == there.said["place"] != ""
            assert here.find(one, other) == there.find(one, other) == []
            there.kill()
            assert here.find(one, other) == [other]
            with holding(path, "host-2-cc", apart=apart) as again:  # with an id that was used
                assert here.find(one, "host-2-cc") == []
                assert again.find(one, other) == [other]


def test_a_child_that_a_tool_forked_does_not_keep_the_name_of_its_parent(bench: Bench) -> None:
    with closing(bench.open()) as names, holding(bench.path, "parent", "fork") as holder:
        hold(names, "mine")
        os.kill(holder.said["pid"], signal.SIGKILL)
        holder.process.wait()
        os.kill(holder.said["child"], 0)  # it lives
        assert find(names, "parent") == ("parent",)
        os.kill(holder.said["child"], signal.SIGKILL)


def test_the_end_of_a_child_frees_nothing_of_its_parent(bench: Bench) -> None:
    with closing(bench.open()) as names, holding(bench.path, "parent", "fork") as holder:
        os.kill(holder.said["child"], signal.SIGKILL)
        assert holder.find("mine") == []
        assert find(names, "parent") == ()


def test_a_program_that_is_started_gets_no_lock(bench: Bench) -> None:
    names = bench.open()
    hold(names, "parent")
    with (
        closing(bench.open()) as other,
        subprocess.Popen(["sleep", "60"], close_fds=False) as started,
    ):
        names.close()
        assert find(other, "parent") == ("parent",)
        started.kill()


# --- Hosts


@BACKENDS
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_hosts_of_one_database_see_each_other_live_and_end(
    backend: str, engine: str, bench: Bench, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{bench.path}"
    if engine == "postgresql":
        url = request.getfixturevalue("postgres")

    async def main() -> None:
        async with open_host({"main": url}) as one:
            async with open_host({"main": url}) as other:
                held = [await host.run(ask(HoldName("main", host.node))) for host in (one, other)]
                assert held[0] == held[1]
                assert held[0].place != ""
                asked = FindDead("main", (other.node, one.node, "never"))
                assert await one.run(ask(asked)) == await other.run(ask(asked)) == ()
            assert await one.run(ask(asked)) == (other.node,)

    run(backend, main)


def test_two_urls_of_one_database_are_two_places(postgres_cluster: Cluster) -> None:
    """Whoever reaches it in another way is not seen, and so is not taken for dead."""
    urls = (postgres_cluster.url(), postgres_cluster.socket_url())

    async def main() -> None:
        async with open_host({"main": urls[0]}) as one, open_host({"main": urls[1]}) as other:
            held = [await host.run(ask(HoldName("main", host.node))) for host in (one, other)]
            assert "" != held[0].place != held[1].place != ""
            assert await one.run(ask(FindDead("main", (other.node,)))) == ()

    run("trio", main)


# --- Files that come and go


def test_a_file_that_is_missing_says_nothing_and_is_made_anew(bench: Bench) -> None:
    with closing(bench.open()) as one, closing(bench.open()) as other:
        place = hold(one, "one")
        hold(other, "other")
        for path in bench.files():
            path.unlink()
        assert find(other, "one") == ()
        assert hold(one, "one") == place
        assert find(other, "one") == ()
        one.close()
        assert find(other, "one") == ("one",)
    assert bench.lines == []


def test_a_folder_that_was_made_anew_is_another_place(bench: Bench) -> None:
    with closing(bench.open()) as one, closing(bench.open()) as other:
        place = hold(one, "one")
        bench.folder.rename(bench.path.with_name("elsewhere"))
        assert find(other, "one") == ()
        assert hold(other, "other") not in ("", place)
        assert hold(one, "one") == hold(other, "other")


def test_a_copied_database_is_another_place(bench: Bench) -> None:
    with closing(bench.open()) as one:
        place = hold(one, "one")
        copy = bench.path.with_name("b.db")
        shutil.copy(bench.path, copy)
        with closing(Bench(copy, Lines()).open()) as there:
            assert hold(there, "two") not in ("", place)
            assert find(there, "one") == ()


def test_a_link_to_a_database_leads_to_the_same_place(bench: Bench) -> None:
    link = bench.path.with_name("link.db")
    link.symlink_to(bench.path)
    with closing(bench.open()) as one, closing(Bench(link, Lines()).open()) as other:
        assert hold(one, "one") == hold(other, "other") != ""


def test_nobody_is_dead_while_files_are_removed_and_made_anew(bench: Bench) -> None:
    """Two look all the time, and one removes what is old, as long as it lives."""
    wrong: list[tuple[str, ...]] = []
    over = threading.Event()

    def look(names: Names) -> None:
        while not over.is_set():
            if found := names._find_dead(("living",)):
                wrong.append(found)

    with (
        closing(bench.open()) as living,
        closing(bench.open()) as one,
        closing(bench.open()) as two,
    ):
        hold(living, "living")
        (path,) = bench.files()
        lookers = [threading.Thread(target=look, args=(names,)) for names in (one, two)]
        for thread in lookers:
            thread.start()
        for number in range(400):
            if number % 2:
                path.unlink()
            else:
                os.utime(path, (0, 0))
                names_module._sweep(str(bench.folder))
            assert living._hold("living")
        over.set()
        for thread in lookers:
            thread.join()
    assert wrong == []


def test_what_is_old_and_free_is_removed_at_a_start(bench: Bench) -> None:
    with closing(bench.open()) as living, closing(bench.open()) as fresh:
        hold(living, "living")
        ended = bench.open()
        hold(ended, "old")
        hold(ended, "young")
        ended.close()
        foreign = bench.folder / "commit"
        foreign.touch()
        long_ago = time.time() - STALE_SECONDS - 60
        place = place_beside(str(bench.path))
        for path in (place.path("living"), place.path("old"), foreign):
            os.utime(path, (long_ago, long_ago))
        hold(fresh, "fresh")

        left = {str(path) for path in bench.files()}
        assert left == {str(foreign), *map(place.path, ("living", "young", "fresh"))}
        assert find(fresh, "living", "old", "young") == ("young",)


def test_a_name_that_is_held_is_kept_young(bench: Bench) -> None:
    with closing(bench.open()) as names:
        hold(names, "a")
        (path,) = bench.files()
        os.utime(path, (0, 0))
        hold(names, "a")
        assert path.stat().st_mtime > time.time() - 60


def test_nobody_is_dead_while_another_process_stands_in(bench: Bench) -> None:
    one, other, third = bench.open(), bench.open(), bench.open()
    hold(one, "n")
    anyio.run(other.stand_in, "n")
    one.close()
    assert find(third, "n") == ()

    other.close()
    assert find(third, "n") == ("n",)
    third.close()


def test_a_name_can_be_taken_up_after_the_end_of_who_held_it(bench: Bench) -> None:
    first, second = bench.open(), bench.open()
    hold(first, "fixed")
    first.close()
    assert hold(second, "fixed")
    with closing(bench.open()) as other:
        assert find(other, "fixed") == ()
    second.close()


# --- Where names cannot be held


def test_a_name_that_another_process_holds_is_not_ours(bench: Bench) -> None:
    with closing(bench.open()) as one, closing(bench.open()) as other:
        assert hold(one, "same")
        assert hold(other, "same") == ""
        assert find(other, "same") == ()
        one.close()
        assert hold(other, "same")
    assert [event for _, event, _ in bench.lines] == ["name_not_held"]


def plant(bench: Bench, what: str) -> None:
    if what == "a link":
        elsewhere = bench.path.with_name("elsewhere")
        elsewhere.mkdir()
        bench.folder.symlink_to(elsewhere)
    elif what == "a file":
        bench.folder.touch()
    elif what == "open to others":
        bench.folder.mkdir()
        bench.folder.chmod(0o777)
    elif what == "of another":
        bench.folder.mkdir()
        os.chown(bench.folder, 12_345, 12_345)


FOLDERS: Final = ["a link", "a file", "open to others"]


@pytest.mark.parametrize("what", [*FOLDERS, *(["of another"] if os.geteuid() == 0 else [])])
def test_a_folder_that_is_not_ours_is_no_place_and_no_error(bench: Bench, what: str) -> None:
    plant(bench, what)
    with closing(bench.open()) as names:
        for _ in range(2):
            assert hold(names, "a") == ""
            assert find(names, "a", "b") == ()
        ((level, event, fields),) = bench.lines
        assert (level, event, fields["database"]) == ("warning", "name_not_held", "main")
        assert str(bench.folder) in fields["error"]

        if bench.folder.is_symlink() or bench.folder.is_file():
            bench.folder.unlink()
        else:
            bench.folder.rmdir()
        assert hold(names, "a")
        bench.folder.rename(bench.path.with_name("gone"))
        plant(bench, "a file")
        assert hold(names, "a") == ""
    assert len(bench.lines) == 2


def test_a_database_that_is_gone_is_no_place(bench: Bench) -> None:
    bench.path.unlink()
    with closing(bench.open()) as names:
        assert hold(names, "a") == ""
    assert len(bench.lines) == 1


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_what_is_no_file_says_nothing(bench: Bench, what: str) -> None:
    place = place_beside(str(bench.path))
    with closing(bench.open()) as names:
        hold(names, "mine")
        path = Path(place.path("a"))
        if what == "link":
            path.symlink_to(bench.path)
        elif what == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
        assert find(names, "a") == ()
        assert hold(names, "a") == ""
        assert hold(names, "mine")


@frozen
class Hanging(LockFolder):
    """A folder on a disk that does not answer."""

    over: threading.Event = field(factory=threading.Event)

    def prepare(self) -> os.stat_result:
        self.over.wait(20)
        return super().prepare()


@BACKENDS
def test_a_disk_that_hangs_keeps_nobody(
    backend: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_module, "LOOK_SECONDS", 0.05)
    over = threading.Event()
    folder = Hanging(str(bench.folder), str(bench.path), over)
    names = Names("main", NamePlace(folder), bench.lines.write)

    async def main() -> None:
        turns = 0
        async with anyio.create_task_group() as tasks:

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await anyio.sleep(0.001)

            tasks.start_soon(count)
            assert await names.hold("a") == ""
            assert await names.find_dead(("b",)) == ()
            assert turns > 1  # the event loop went on meanwhile
            tasks.cancel_scope.cancel()
        names.close()
        over.set()

    run(backend, main)
    assert [event for _, event, _ in bench.lines] == ["name_not_held"]
    with closing(bench.open()) as other:  # what came too late was closed
        hold(other, "other")
        for _ in range(500):
            if Path(place_beside(str(bench.path)).path("a")).exists():
                break
            time.sleep(0.01)
        found: tuple[str, ...] = ()
        for _ in range(500):
            found = find(other, "a")
            if found:
                break
            time.sleep(0.01)
        assert found == ("a",)


# --- Whose the files are


@pytest.mark.parametrize(
    ("of_database", "of_folder", "of_file"),
    [(0o600, 0o700, 0o600), (0o660, 0o770, 0o660), (0o664, 0o775, 0o664)],
    ids=oct,
)
def test_files_are_for_whom_the_database_is(
    bench: Bench, of_database: int, of_folder: int, of_file: int
) -> None:
    bench.path.chmod(of_database)
    if os.geteuid() == 0:
        os.chown(bench.path, 12_345, 12_346)
    with closing(bench.open()) as names:
        assert hold(names, "a")
        (file,) = bench.files()
        like = bench.path.stat()
        assert bench.folder.stat().st_mode & 0o777 == of_folder
        assert file.stat().st_mode & 0o777 == of_file
        for made in (bench.folder.stat(), file.stat()):
            assert (made.st_uid, made.st_gid) == (like.st_uid, like.st_gid)


def test_the_folder_of_a_user_is_the_user_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lines = Lines()
    with (
        closing(Names("main", place_of_user("host=a"), lines.write)) as one,
        closing(Names("main", place_of_user("host=a"), lines.write)) as same,
        closing(Names("main", place_of_user("host=b"), lines.write)) as other,
    ):
        assert hold(one, "n") == hold(same, "m") != hold(other, "n") != ""
        same.close()
        assert find(one, "m") == ("m",)
        assert find(other, "m") == ()
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
        assert one._at.find(names_module._identify_kernel()) > 0
    assert lines == []


def test_without_temporary_files_a_user_has_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    lines = Lines()
    with closing(Names("main", place_of_user("host=a"), lines.write)) as names:
        assert hold(names, "n") == ""
    assert [event for _, event, _ in lines] == ["name_not_held"]


def test_two_systems_that_share_a_folder_have_two_places(bench: Bench) -> None:
    folder = LockFolder(str(bench.folder))
    one, other = (Names("main", NamePlace(folder, "", boot), quiet_write) for boot in ("a-", "b-"))

    assert hold(one, "one") != hold(other, "other")
    one.close()
    other.close()


def quiet_write(*_: object) -> None:
    """Write nothing."""


def test_a_kernel_without_an_id_is_known_by_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_module, "_BOOT_ID", tmp_path / "missing")

    assert names_module._identify_kernel() == socket.gethostname()


# --- Locks


def test_a_lock_that_holds_nobody_off_is_found_out(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = FileLock.open(path, make_mode=0o600)

    with pytest.raises(OSError, match="hold nobody off"):
        lock.check(path)  # it is not held
    assert lock.try_hold()
    lock.check(path)
    lock.free()
    lock.close()
    lock.close()
    assert not lock.is_at(path)
    with pytest.raises(FileExistsError):
        FileLock.open(path, make_mode=0o600)
