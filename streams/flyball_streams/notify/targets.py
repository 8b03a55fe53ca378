"""Targets of alerts: each one receives new alerts at its own speed, and retries failed ones."""

import http.client
import logging
import re
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

import msgspec

from flyball_contracts.errors import ConfigError, TransportError
from flyball_contracts.records import Incident
from flyball_contracts.security.clear import in_clear
from flyball_streams.notify.alerts import Alert, alert_of, over, rfc3339

_LOG = logging.getLogger(__name__)
TIMEOUT_S = 10.0
REPEAT_S = 60.0
"""Active alerts are repeated to Alertmanager in this interval, as they would end by themselves otherwise."""
MOST_IN_ONE = 64
SLICE_S = 10.0
"""A webhook that is slow to answer keeps the other receivers waiting for hardly longer than this."""
_encode = msgspec.json.Encoder().encode
_TRANSIENT = frozenset({408, 425, 429})
_UNFIT = frozenset({400, 413, 422})


class Refused(TransportError):
    """The server rejects all requests: the address or the token is wrong."""


class Unfit(TransportError):
    """The server will never accept this body; sending it again is useless."""


class Target(Protocol):
    """One receiver. ``take`` queues an incident, ``send`` delivers what is due, and raises :class:`TransportError`.

    An incident that the receiver rejects as :class:`Unfit` is dropped, so that others get through; only its end is
    still sent, if an earlier revision was accepted. ``refused`` lists dropped incidents with the response, until the
    caller clears it.
    """

    url: str
    refused: list[tuple[Incident, Unfit]]

    def take(self, one: Incident, *, is_new: bool, in_doubt: bool = False) -> None:
        """Queue the newest record of an incident; a record that is not new was delivered before a restart.

        One that is new and ``in_doubt`` may have been delivered before a restart.
        """
        ...

    def send(self, now_ns: int) -> int:
        """Deliver what is due at a wall-clock time; return the number of alerts."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether nothing new is waiting."""
        ...


class Alertmanager:
    """Receives all active alerts repeatedly, as from Prometheus; it groups, routes and de-duplicates."""

    def __init__(self, url: str, page: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.refused: list[tuple[Incident, Unfit]] = []
        self._given_up: set[str] = set()
        self._post = Poster(url, "/api/v2/alerts", headers)
        self._page = page
        self._open: dict[str, Incident] = {}
        self._delivered: dict[str, Alert] = {}
        self._waiting: set[str] = set()
        self._ended: dict[str, Incident] = {}
        self._sent_ns = 0

    def take(self, one: Incident, *, is_new: bool, in_doubt: bool = False) -> None:
        """Queue the newest record of an incident."""
        del in_doubt  # an end that Alertmanager does not need does no harm
        if one.id in self._given_up and one.status == "open":
            return
        self._given_up.discard(one.id)
        goes_on = one.status == "open" and not one.silence
        if goes_on:
            self._open[one.id] = one
            self._ended.pop(one.id, None)
        else:
            was_open = self._open.pop(one.id, None) is not None
            if not (one.id in self._delivered or (was_open and is_new)):
                return
            self._ended[one.id] = one
        self._waiting.add(one.id)

    def send(self, now_ns: int) -> int:
        """Deliver new alerts, and all active ones every ``REPEAT_S``."""
        again = not 0 <= now_ns - self._sent_ns < REPEAT_S * 1e9
        names = sorted(self._open) if again else sorted(self._waiting & self._open.keys())
        due = [(self._open[name], alert_of(self._open[name], now_ns, self._page)) for name in names]
        ended = [self._ended[name] for name in sorted(self._ended)]
        batch: list[tuple[Incident, Alert]] = list(due)
        for one, alert in (*due, *((one, alert_of(one, now_ns, self._page)) for one in ended)):
            if one.id in self._ended:
                batch.append((one, alert))
            if (old := self._delivered.get(one.id)) is not None and old.key != alert.key:
                batch.append((one, over(old, now_ns)))
        sent = sum(self._deliver(batch[first : first + MOST_IN_ONE]) for first in range(0, len(batch), MOST_IN_ONE))
        self._delivered.update((one.id, alert) for one, alert in due if one.id not in self._given_up)
        for one in ended:
            self._ended.pop(one.id, None)
            self._delivered.pop(one.id, None)
        self._waiting.clear()
        self._sent_ns = now_ns if again else self._sent_ns
        return sent

    @property
    def is_done(self) -> bool:
        """Whether nothing new is waiting."""
        return not self._waiting

    def _deliver(self, batch: Sequence[tuple[Incident, Alert]]) -> int:
        """Send alerts together, or in halves if one is unfit; return how many were accepted."""
        left = [(one, alert) for one, alert in batch if one.id not in self._given_up]
        if not left:
            return 0
        try:
            self._post([alert.posted() for _, alert in left])
        except Unfit as error:
            if len(left) == 1:
                self._give_up(left[0][0], error)
                return 0
            half = len(left) // 2
            return self._deliver(left[:half]) + self._deliver(left[half:])
        return len(left)

    def _give_up(self, one: Incident, error: Unfit) -> None:
        self.refused.append((one, error))
        self._open.pop(one.id, None)
        self._ended.pop(one.id, None)
        self._waiting.discard(one.id)
        if one.status == "open":
            self._given_up.add(one.id)


class Webhook:
    """Receives each relevant change once, in the format of Alertmanager's webhooks (version 4).

    An incident that was silenced from the beginning is not sent, nor one that ends before its beginning was delivered,
    unless that is in doubt. The header ``Idempotency-Key`` is the incident with
    its revision, as a restart may repeat it.
    """

    def __init__(self, url: str, page: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.refused: list[tuple[Incident, Unfit]] = []
        self._given_up: set[str] = set()
        self._post = Poster(url, "", headers)
        self._page = page
        self._waiting: dict[str, Incident] = {}
        self._delivered: dict[str, tuple[object, ...]] = {}
        self._doubted: set[str] = set()
        """Incidents whose beginning may have been delivered before a restart."""

    def take(self, one: Incident, *, is_new: bool, in_doubt: bool = False) -> None:
        """Queue the newest record of an incident."""
        if one.id in self._given_up and one.status == "open":
            return
        self._given_up.discard(one.id)
        if in_doubt and one.status == "open" and not one.silence:
            self._doubted.add(one.id)
        if not is_new:
            if one.status != "open":
                self._delivered.pop(one.id, None)
            elif not one.silence:
                self._delivered[one.id] = _matter(one)
        elif one.status == "open" and one.silence:
            self._waiting.pop(one.id, None)
        else:
            self._waiting[one.id] = one

    def send(self, now_ns: int) -> int:
        """Deliver new records, the rest next time if that takes longer than ``SLICE_S``."""
        sent, until_s = 0, time.monotonic() + SLICE_S
        for name in sorted(self._waiting):
            if sent and time.monotonic() >= until_s:
                break
            one = self._waiting[name]
            ends = one.status != "open"
            is_known = name in self._delivered or name in self._doubted
            if (ends and not is_known) or self._delivered.get(name) == _matter(one):
                del self._waiting[name]
                continue
            try:
                self._post(_body(one, alert_of(one, now_ns, self._page)), key=f"{one.id}/{one.revision}")
            except Unfit as error:
                self.refused.append((one, error))
                del self._waiting[name]
                if ends:
                    self._forget(name)
                else:
                    self._given_up.add(name)
                continue
            if ends:
                self._forget(name)
            else:
                self._delivered[name] = _matter(one)
            del self._waiting[name]
            sent += 1
        return sent

    @property
    def is_done(self) -> bool:
        """Whether nothing new is waiting."""
        return not self._waiting

    def _forget(self, name: str) -> None:
        self._delivered.pop(name, None)
        self._doubted.discard(name)


class Poster:
    """POSTs JSON to one address.

    Raises :class:`Unfit` if the server will never accept the body (400, 413, 422), :class:`Refused` if it accepts
    nothing from us (other 4xx responses, and redirects, which are not followed), and :class:`TransportError` if a retry
    may succeed. A query belongs to the address, and is left out of messages, as it may hold a secret.
    """

    def __init__(self, url: str, path: str, headers: Mapping[str, str] | None = None) -> None:
        parts = checked(url)
        self._url, self._parts = _without_query(url), parts
        if headers and in_clear(url):
            _LOG.warning("incidents notify: %s: the token leaves this machine without TLS; use https", self._url)
        path = parts.path.rstrip("/") + path if path else parts.path or "/"
        self._path = f"{path}?{parts.query}" if parts.query else path
        self._headers = {"Content-Type": "application/json", "User-Agent": "flyball", **(headers or {})}

    def __call__(self, body: object, key: str = "") -> None:
        """Send one request."""
        make = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        link = make(self._parts.hostname or "", self._parts.port, timeout=TIMEOUT_S)
        headers = {**self._headers, "Idempotency-Key": key} if key else self._headers
        try:
            link.request("POST", self._path, _encode(body), headers)
            answer = link.getresponse()
            text, status = answer.read(2_000).decode("utf-8", "replace").strip(), answer.status
            to = _without_query(answer.headers.get("Location") or "an unknown address")
        except (OSError, http.client.HTTPException, socket.gaierror) as error:
            raise TransportError(f"{self._url} does not answer: {error or type(error).__name__}") from error
        finally:
            link.close()
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            raise Refused(f"{self._url} answers {status}, a redirect to {to}, which is not followed")
        kind: type[TransportError] = Unfit if status in _UNFIT else TransportError
        if 400 <= status < 500 and status not in _TRANSIENT | _UNFIT:
            kind = Refused
        raise kind(f"{self._url} answers {status}: {' '.join(text.split())[:200]}")


def _without_password(url: str) -> str:
    return re.sub(r"//[^/]*@", "//...@", url)


def _without_query(url: str) -> str:
    return url.partition("?")[0]


def checked(url: str, where: str = "incidents notify") -> SplitResult:
    """The parts of an address; raises :class:`ConfigError` for an invalid address, or one that contains a secret."""
    remedy = "give one like http://127.0.0.1:9093"
    try:
        parts = urlsplit(url)
        port = parts.port
        url.encode("ascii")
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise ConfigError(f"{where}: {_without_password(url)!r} is no address ({error}); {remedy}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigError(f"{where}: {_without_password(url)!r} is no address; {remedy}")
    if parts.username or parts.password:
        raise ConfigError(f"{where}: the address of {parts.hostname} holds a password; use --token-env")
    return parts


def _matter(one: Incident) -> tuple[object, ...]:
    """The fields of an incident; a change of any of them is sent as a message."""
    actions = tuple((action.decision, action.status) for action in one.actions)
    return one.status, one.severity, one.cause, one.level, one.node, one.device, one.workload, actions


def _body(one: Incident, alert: Alert) -> dict[str, object]:
    resolved = one.status != "open"
    status = "resolved" if resolved else "firing"
    alert_body = {
        "status": status, "labels": alert.labels, "annotations": alert.annotations,
        "startsAt": rfc3339(alert.starts_ns), "endsAt": rfc3339(alert.ends_ns) if resolved else "0001-01-01T00:00:00Z",
        "generatorURL": alert.link, "fingerprint": one.id,
    }  # fmt: skip
    return {
        "version": "4", "groupKey": f"{{}}:{{incident={_encode(one.id).decode()}}}", "truncatedAlerts": 0,
        "status": status, "receiver": "flyball", "groupLabels": {"incident": one.id}, "commonLabels": alert.labels,
        "commonAnnotations": alert.annotations, "externalURL": alert.link, "alerts": [alert_body], "incident": one,
    }  # fmt: skip
