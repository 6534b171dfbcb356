"""A platform served by the trio server, in one process or in several."""

from __future__ import annotations

import gc
import json
import os
import socket
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

import trio
from attrs import field

from legation import Platform
from legation.access.posture import Door
from legation.effects import Program
from legation.observability.merging import Snapshot
from legation.values import define, frozen
from legation_host import Host, Write, open_host, open_log
from legation_host.databases import in_memory
from legation_host.host import system_clock
from legation_host.hosting import log_findings, open_platform
from legation_host.logs import ShowError, hide_error, is_for_eyes, open_request_log, quiet
from legation_host.observer import Exporter, Observer
from legation_host.parent_files import ParentFiles
from legation_host.trust_files import reload_files
from legation_server import (
    BadLimit,
    BadNetwork,
    Life,
    ListenError,
    Notifier,
    Proxies,
    Server,
    Settings,
    address_of,
    close_listeners,
    hold_reload,
    ignore_reload,
    open_listeners,
    open_slots,
    open_unix_listener,
    parse_limits,
    parse_networks,
    run,
    take_listeners,
)
from legation_server.tls import Certificate, CertificateError
from legation_server.watcher import Page, watch

from .failing import CannotGoOn, sentences
from .imports import freeze_imports
from .milestones import Milestones

if TYPE_CHECKING:
    from legation_host.metrics_sender import MetricsSender
    from legation_server import Work
    from legation_server.proxies import Named
    from legation_server.scrapes import Scrapes
    from legation_server.worker_link import WorkerLink

__all__ = ["GARBAGE", "HeldLog", "ServeOptions", "Service", "end_blocked", "url_of"]

GARBAGE: Final = (10_000, 20, 50)
"""The thresholds of the collector in a process that serves: how many new objects are between two
looks at them, and how many looks until the older ones are looked at.

What a run leaves goes by its counts of references, and is no work for the collector.  With the
usual thresholds it looked at runs in progress again and again, for a twentieth of their CPU.
"""

_BEATS: Final = 4
"""Of an event loop, in the seconds of the watchdog."""

_MARK_SECONDS: Final = 30.0
"""For the end of a run to be stored whose process is gone."""

Line: TypeAlias = tuple[str, str, Mapping[str, Any]]
Slots: TypeAlias = Sequence[Sequence[socket.socket]]

UNPROTECTED: Final = (
    "authorization is off, and {host} can be reached by others: switch it on"
    " (`legation keys new` shows how), or say --insecure"
)
NOT_SHARED: Final = (
    "databases.{name} is in memory, and every worker would have one of its own:"
    " give it a file, or serve it with one worker"
)


@frozen
class ServeOptions:
    """The options of `legation serve`, as they were typed.

    Attributes:
        given: The sockets of a process that was started by another one.
        parent: A descriptor that is readable when that one is gone.
    """

    host: str
    port: int
    unix: str | None = None
    workers: int = 1
    certfile: str | None = None
    keyfile: str | None = None
    proxies: tuple[str, ...] = ()
    forwarded: Named = "x-forwarded-for"
    limits: tuple[str, ...] = ()
    log_format: str = "auto"
    access_log: bool = True
    traces: bool = False
    metrics: bool = False
    insecure: bool = False
    hsts: bool = True
    given: tuple[socket.socket, ...] = ()
    parent: int | None = None


@define(eq=False)
class HeldLog:
    """A log that keeps its lines until the server listens.

    Formatting the first line loads a library, which takes a quarter of the time to start.
    """

    log: Write
    _held: list[Line] | None = field(factory=list[Line], init=False)

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        """Write a line, now or as soon as lines are let go."""
        held = self._held
        if held is None:
            self.log(level, event, fields)
        else:
            held.append((level, event, fields))

    def let_go(self) -> None:
        """Write what was held, and from now on everything at once."""
        held, self._held = self._held, None
        for line in held or ():
            self.log(*line)


@define(eq=False)
class Service:
    """The service of one platform, from the command line to the exit code.

    Attributes:
        load: Makes the platform, again at each reload.
        greet: Gets the URL when requests are answered.
        show_error: Takes what was raised, for the author at the terminal.
        prepare: Runs in each process before its platform is opened.
    """

    load: Callable[[], Platform]
    options: ServeOptions
    greet: Callable[[Platform, str], object]
    show_error: ShowError = hide_error
    prepare: Callable[[Write], Awaitable[None]] | None = None
    platform: Platform = field(init=False)
    settings: Settings = field(init=False)
    proxies: Proxies = field(init=False)
    certificate: Certificate | None = field(init=False)
    log: HeldLog = field(init=False)
    _public_addresses: tuple[str, ...] = field(init=False)
    _observer: Observer = field(init=False)
    _page: Page = field(init=False)
    notifier: Notifier = field(init=False)
    _milestones: Milestones = field(init=False)
    _scrapes: Scrapes = field(init=False)
    """Of several workers, the parent's links to them; in one of these, its own."""
    _make_link: Callable[[socket.socket], WorkerLink] = field(init=False)
    _link: WorkerLink | None = field(default=None, init=False)
    """In one of several workers, what leads to the others."""
    _files: WeakSet[ParentFiles] = field(factory=WeakSet[ParentFiles], init=False)
    """Of every platform that a worker may still be forked for."""
    _up: bool = field(default=False, init=False)

    def run(self) -> int:
        """Serve until a signal ends it; return the exit code.

        Raises:
            CannotGoOn: Something is wrong that the operator can mend.
        """
        self.log = HeldLog(open_log(self.options.log_format))
        self.notifier = Notifier(os.environ)
        self._milestones = self._make_milestones()
        hold_reload()
        try:
            with sentences():
                return self._run_to_the_end()
        except (ListenError, BadNetwork, BadLimit) as error:
            raise CannotGoOn(str(error)) from None
        finally:
            ignore_reload()
            self.log.let_go()

    def _make_milestones(self) -> Milestones:
        """Return what notes the start and the end; what is started again and again has none."""
        if self.options.parent is not None:
            return Milestones(quiet, for_eyes=False)
        return Milestones(self.log.write, is_for_eyes(self.options.log_format))

    def _run_to_the_end(self) -> int:
        try:
            code = self._run()
        except BaseException as error:
            self._milestones.note_end(error)
            raise
        self._milestones.note_end()
        return code

    def _run(self) -> int:
        options = self.options
        self.settings = parse_limits(options.limits)
        self.proxies = parse_networks(options.proxies, options.forwarded)
        self.certificate = _certificate(options)
        inherited = options.given or take_listeners(os.environ)
        self._public_addresses = _public_addresses(options, inherited)
        if self.certificate is not None:
            # On this machine it would bind whatever else is developed at its ports.
            self.certificate.hsts = options.hsts and self._door().reach == "network"
        self.platform = self._load_platform()
        slots = self._open(inherited)
        try:
            return self._serve_alone(slots[0]) if len(slots) == 1 else self._serve_many(slots)
        finally:
            for listeners in slots:
                close_listeners(listeners)

    def _load_platform(self) -> Platform:
        """Return the platform, read now; fail where it must not be served like this."""
        platform, options = self.load(), self.options
        closed = platform.config.authorization or options.insecure
        for host in () if closed else self._public_addresses:
            if not _is_loopback(host):
                raise CannotGoOn(UNPROTECTED.format(host=host or "every address"))
        for name, url in platform.databases.items():
            if options.workers > 1 and in_memory(url):
                raise CannotGoOn(NOT_SHARED.format(name=name))
        platform.door = self._door()
        log_findings(platform, self.log.write)
        return platform

    def _door(self) -> Door:
        """Return the way in which requests reach the platform."""
        others = not all(map(_is_loopback, self._public_addresses))
        return Door(
            "network" if others else "machine",
            encrypted=self.certificate is not None,
            proxied=bool(self.options.proxies),
            hsts=self.options.hsts,
        )

    def _open(self, inherited: tuple[socket.socket, ...]) -> Slots:
        options, backlog = self.options, self.settings.backlog
        if inherited:
            return (inherited,) * options.workers
        if options.unix is not None:
            return ((open_unix_listener(options.unix, backlog=backlog),),) * options.workers
        if options.workers == 1:
            return (open_listeners(options.host, options.port, backlog=backlog),)
        return open_slots(options.host, options.port, options.workers, backlog=backlog)

    def _worker(self, listeners: Sequence[socket.socket], life: Life) -> None:
        """Be the one worker of this process, watched by another one."""
        log = self.log.log
        ending = partial(end_blocked, self.platform, log)
        with watch(self.settings.step_seconds, ending, log) as self._page:
            # The process is the command's own here, and what is there is frozen.
            gc.set_threshold(*GARBAGE)
            run(
                lambda: self.platform,
                self._host,
                listeners,
                self.settings,
                log=self.log.write,
                proxies=self.proxies,
                certificate=self.certificate,
                life=life,
            )

    @asynccontextmanager
    async def _host(self, platform: Platform) -> AsyncGenerator[Host]:
        self._observer = self._make_observer()
        log, page = self.log.write, self._page
        if self.prepare is not None:
            await self.prepare(log)
        opened = open_platform(
            platform,
            log=log,
            show_error=self.show_error,
            observer=self._observer,
            noted=page,
            tells=False,
        )
        async with opened as host:
            if self._link is not None:
                measure = partial(self._measure, platform, host)
                host.tasks.start_soon(self._link.serve, measure, name="link to the parent")
                platform.telemetry.gather = self._link.gather
            yield host

    def _measure(self, platform: Platform, host: Host) -> Snapshot:
        """Return what this worker has measured until now."""
        self._observer.look(platform, host)
        return platform.measure(host.clock())

    def _make_observer(self) -> Observer:
        """Return the observer: the request log, the spans and the metrics of this process."""
        options = self.options
        observer = Observer()
        if options.access_log:
            observer.write_lines = open_request_log(self.log.write, options.log_format)
        if options.traces:
            observer.exporter = _exporter(self.log.write)
        if options.metrics:
            observer.metrics = _metrics(self.log.write)
        return observer

    def _add_gauges(self, server: Server) -> None:
        """Add the gauges of `server`, and of its certificate, to the metrics."""
        self._observer.sources.append(server.gauges)
        if self.certificate is not None:
            self._observer.sources.append(self.certificate.gauges)

    def _shutdown(
        self, patience_seconds: float, grace_seconds: float, is_open: Callable[[], bool]
    ) -> Program[None]:
        return self.platform.shutdown(patience_seconds, grace_seconds, is_open)

    def _serve_alone(self, listeners: Sequence[socket.socket]) -> int:
        url = self._url(listeners)

        def announce(server: Server) -> None:
            self._add_gauges(server)
            self.notifier.tell_ready()
            self._announce(url)
            self._let_go_beside()

        hooks = (announce, self._reload_in_place, self._note_stop, self._shutdown)
        life = Life(*hooks, self.options.parent, self.notifier.beat, self._beat_seconds())
        self._worker(listeners, life)
        return 0

    def _announce(self, url: str) -> None:
        """Tell a person and the log that requests are answered."""
        self._milestones.note_start(url, self.platform.config.id, self.options.workers)
        self.greet(self.platform, url)

    def _note_stop(self, reason: str) -> None:
        """Tell the service manager and the log that the end begins."""
        self.notifier.tell_stop()
        self._milestones.note_stop(reason)

    def _let_go_beside(self) -> None:
        """Write the lines held, while requests are answered already."""
        threading.Thread(target=self.log.let_go, name="log", daemon=True).start()

    def _reload_in_place(self) -> None:
        """Read keys and certificate again.  The rest of the configuration needs a restart."""
        self.notifier.tell_reload()
        reload_files(self.platform, self.log.write)
        try:
            self._reload_certificate()
        except CannotGoOn as error:
            self.log.write("error", "reload_failed", {"reason": str(error)})
        self.notifier.tell_ready()

    def _reload_certificate(self) -> None:
        if self.certificate is None:
            return
        try:
            self.certificate.reload()
        except CertificateError as error:
            raise CannotGoOn(str(error)) from None
        self.log.write("info", "certificate_reloaded", {"path": self.certificate.certfile})

    def _serve_many(self, slots: Slots) -> int:
        # What one worker alone does not need.
        from legation_server import Hooks, run_workers
        from legation_server.scrapes import Scrapes

        # Before the first fork: what every worker would load is loaded once, and shared.  A host
        # without databases has no threads, and the event loop has ended.
        trio.run(_open_nothing)
        with freeze_imports():
            self.platform.import_handlers()
            self._make_link = import_module("legation_server.worker_link").WorkerLink
        self._scrapes = Scrapes()
        self.log.let_go()
        self.log.write("info", "workers_starting", {"workers": len(slots)})
        url = self._url(slots[0])

        def ready() -> None:
            self._up = True
            self.notifier.tell_ready()
            self._announce(url)

        return run_workers(
            slots,
            self._work_of(self.platform),
            drain_seconds=self.settings.drain_seconds,
            silence_seconds=self.notifier.watchdog_seconds,
            log=self.log.write,
            hooks=Hooks(
                ready=ready,
                reload=self._reload_for_successors,
                stopping=self._note_stop,
                tick=self._look_at_files,
                beat=self.notifier.beat,
            ),
            scrapes=self._scrapes,
        )

    def _beat_seconds(self) -> float | None:
        """Return the seconds between two beats of an event loop; None where nobody waits."""
        seconds = self.notifier.watchdog_seconds
        return None if seconds is None else seconds / _BEATS

    def _work_of(self, platform: Platform) -> Work:
        """Return the work of the workers that serve `platform`; its files are looked at as long."""
        files = ParentFiles(platform)
        self._files.add(files)
        return partial(self._be_one_of_many, files)

    def _look_at_files(self) -> None:
        for files in tuple(self._files):
            files.look()

    def _be_one_of_many(
        self,
        files: ParentFiles,
        listeners: Sequence[socket.socket],
        ready: Callable[[], object],
        parent: int,
    ) -> int:
        self.platform = files.platform
        if self._scrapes.own is not None:
            self._link = self._make_link(self._scrapes.own)

        def announce(server: Server) -> None:
            self._add_gauges(server)
            ready()

        try:
            with sentences():
                life = Life(
                    started=announce,
                    closing=self._shutdown,
                    parent=parent,
                    beat=ready,
                    beat_seconds=self._beat_seconds(),
                )
                self._worker(listeners, life)
                if self._link is not None:
                    self._link.end(self.platform.measure(system_clock()))
        except CannotGoOn as error:
            error.show()
            return error.exit_code
        return 0

    def _reload_for_successors(self) -> Work | None:
        """Read the configuration again; return the work of the workers to come, if there is any."""
        if self._up:
            self.notifier.tell_reload()
        try:
            with sentences():
                platform = self._load_platform()
                self._reload_certificate()
        except CannotGoOn as error:
            self.log.write("error", "reload_failed", {"reason": error.message})
            return None
        finally:
            if self._up:
                self.notifier.tell_ready()
        return self._work_of(platform)

    def _url(self, listeners: Sequence[socket.socket]) -> str:
        return url_of(address_of(listeners[0]), secure=self.certificate is not None)


def _exporter(log: Write) -> Exporter:
    """Return where spans are sent."""
    try:
        from legation_host.otel import open_exporter
    except ImportError:
        raise CannotGoOn("--traces needs OpenTelemetry: pip install 'legation[otel]'") from None
    return open_exporter(os.environ, log)


def _metrics(log: Write) -> MetricsSender:
    """Return what sends metrics."""
    try:
        from legation_host.otel_metrics import open_metrics
    except ImportError:
        raise CannotGoOn("--metrics needs OpenTelemetry: pip install 'legation[otel]'") from None
    return open_metrics(os.environ, log)


def end_blocked(
    platform: Platform, log: Write, label: str, end_process: Callable[[], None]
) -> bool:
    """End the process that hangs in a step, and the run of `label`; return whether that ended."""
    return trio.run(_end_blocked, platform, log, label, end_process)


async def _end_blocked(
    platform: Platform, log: Write, label: str, end_process: Callable[[], None]
) -> bool:
    said = json.loads(label)
    with trio.move_on_after(_MARK_SECONDS):
        async with open_host(platform.databases, log=log) as host:
            await host.databases[said["database"]].names.stand_in(said["node"])
            end_process()
            return await host.run(platform.end_blocked(label))
    return False


async def _open_nothing() -> None:
    async with open_host():
        pass


def url_of(address: str, *, secure: bool) -> str:
    """Return the URL of a server that listens at `address`."""
    return address if address.startswith("unix:") else f"http{'s' * secure}://{address}"


def _certificate(options: ServeOptions) -> Certificate | None:
    if options.certfile is None:
        if options.keyfile is not None:
            raise CannotGoOn("--keyfile is the key of a certificate: name that with --certfile")
        return None
    try:
        return Certificate.load(options.certfile, options.keyfile or options.certfile)
    except CertificateError as error:
        raise CannotGoOn(str(error)) from None


def _public_addresses(options: ServeOptions, inherited: Sequence[socket.socket]) -> tuple[str, ...]:
    """Return the addresses that others may reach; the file system guards a Unix socket."""
    if inherited:
        names = [each.getsockname() for each in inherited if each.family != socket.AF_UNIX]
        return tuple(name[0] for name in names)
    return () if options.unix is not None else (options.host,)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
