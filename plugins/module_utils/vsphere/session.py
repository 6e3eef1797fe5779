# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Session with vCenter, opened on demand, used for all calls and always closed.

pyVmomi is imported inside functions only, after the options have been validated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from http.client import HTTPException
from threading import Lock
from typing import Any, TypeVar

from ..errors import FleetError
from .faults import NOT_SUPPORTED, UNREADABLE, Operation, VsphereError, error_from, moid_of
from .names import real_name
from .unparsed import UnparsedFault, faults_in, named_fault

T = TypeVar("T")

Properties = dict[str, Any]


class MissingLibrary(FleetError):
    code = "missing_library"


class BadConnection(FleetError):
    code = "bad_connection"
    certain = False


class Unauthorized(FleetError):
    code = "unauthorized"
    certain = False


class Session:
    """A session with one vCenter. `vim` and `vmodl` are the pyVmomi modules, for building specs."""

    def __init__(self, instance: Any, login: Callable[[Any], Any]) -> None:
        from pyVmomi import vim, vmodl

        self.vim: Any = vim
        self.vmodl: Any = vmodl
        self._login = login
        # Key and user name of the session, as the login returned them.
        self.user_session: Any = None
        self._lock = Lock()
        self.content = instance.RetrieveContent()
        self.stub = instance._stub

    @classmethod
    @contextmanager
    def open(cls, params: Mapping[str, Any]) -> Iterator[Session]:
        """Open a session with the connection options of a module, as a context manager."""
        session = _connect(params)
        try:
            yield session
        finally:
            session.close()

    def close(self) -> None:
        with suppress(Exception):
            self.content.sessionManager.Logout()
        with suppress(Exception):
            self.stub.DropConnections()

    @cached_property
    def version(self) -> tuple[int, ...]:
        """Return the API version as numbers."""
        return tuple(int(part) for part in self.content.about.apiVersion.split(".") if part.isdigit())

    def has(self, since: str) -> bool:
        """Return whether the server has at least this API version. Do not read newer fields (vsphere.md 10.1)."""
        wanted = tuple(int(part) for part in since.split("."))
        length = max(len(wanted), len(self.version))
        mine, its = (numbers + (0,) * (length - len(numbers)) for numbers in (self.version, wanted))
        return mine >= its

    # Calls
    def call(self, subject: Operation, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Make one call. If the session has ended, log in and repeat the call once, since it had no effect."""
        cookie = self.stub.cookie
        with self.reporting(subject):
            try:
                return method(*args, **kwargs)
            except self.vim.fault.NotAuthenticated:
                self.reopen(cookie)
                return method(*args, **kwargs)

    def optional(self, subject: Operation, method: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
        """Make a call that the task can do without. Return None if the server does not offer it."""
        try:
            return self.call(subject, method, *args, **kwargs)
        except VsphereError as error:
            if error.code not in (NOT_SUPPORTED, UNREADABLE):
                raise
            return None

    @contextmanager
    def reporting(self, subject: Operation) -> Iterator[None]:
        """Convert faults and lost connections into errors."""
        try:
            yield
        except self.vmodl.MethodFault as fault:
            raise error_from(fault, subject, self.name_of) from fault
        except (OSError, HTTPException) as error:
            raise BadConnection(f"The connection to vCenter broke while it was to {subject.doing}: {error}.") from error
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            # pyVmomi raises these for types and values that it does not know (vsphere.md 8.3).
            unreadable = _unreadable(error, subject, self.name_of)
            if unreadable is None:
                raise
            raise unreadable from error

    def reopen(self, ended: str | None = None) -> None:
        """Log in again, unless another thread has done so since the session with this cookie ended."""
        with self._lock:
            if ended is None or self.stub.cookie == ended:
                self.stub.cookie = ""
                self.log_in()

    def log_in(self) -> None:
        self.user_session = self._login(self.content)

    def name_of(self, reference: Any) -> str:
        """Return the name of an object for messages, or its id if the name cannot be read."""
        with suppress(Exception):
            return real_name(str(reference.name))
        return moid_of(reference)

    # Reading
    def collect(self, subject: Operation, *filters: Any) -> list[tuple[Any, Properties]]:
        """Return pairs of object and properties for filter specs, in one call unless the server returns pages.

        If the session ends in the meantime, log in and read again from the first page, since pages belong to their
        session.
        """
        return self.call(subject, self._collect, filters)

    def _collect(self, filters: Sequence[Any]) -> list[tuple[Any, Properties]]:
        collector = self.content.propertyCollector
        options = self.vmodl.query.PropertyCollector.RetrieveOptions()
        found: list[tuple[Any, Properties]] = []
        result = collector.RetrievePropertiesEx(list(filters), options)
        while result is not None:
            found.extend((entry.obj, self.properties(entry)) for entry in result.objects)
            if not result.token:
                break
            result = collector.ContinueRetrievePropertiesEx(result.token)
        return found

    def read(self, subject: Operation, references: Iterable[Any], paths: Sequence[str]) -> list[tuple[Any, Properties]]:
        """Return the given properties of objects of one type."""
        listed = list(references)
        if not listed:
            return []
        return self.collect(subject, self.objects_filter(listed, paths))

    def objects_filter(self, references: Sequence[Any], paths: Sequence[str]) -> Any:
        collector = self.vmodl.query.PropertyCollector
        return collector.FilterSpec(
            objectSet=[collector.ObjectSpec(obj=reference) for reference in references],
            propSet=[collector.PropertySpec(type=type(references[0]), pathSet=list(paths))],
            reportMissingObjectsInResults=True,
        )

    def properties(self, entry: Any) -> Properties:
        self.raise_refusal(entry.missingSet)
        # vCenter returns stored names, in which characters are escaped.
        return {
            change.name: real_name(change.val) if change.name == "name" else change.val
            for change in entry.propSet or []
        }

    def unparsed_faults(self, subject: Operation, reference: Any, path: str) -> list[UnparsedFault]:
        """Return the faults in a property that pyVmomi cannot parse, from the XML of the response."""
        wanted = self.objects_filter([reference], [path])
        options = self.vmodl.query.PropertyCollector.RetrieveOptions()
        _status, document = self.raw(subject, "RetrievePropertiesEx", [wanted], options)
        return list(faults_in(document))

    def raw(self, subject: Operation, method: str, *arguments: Any) -> tuple[int, bytes]:
        """Call a method of the property collector. Return the HTTP status and the XML of the response.

        A response in an encoding that was not asked for has status 0.
        """
        collector, stub = self.content.propertyCollector, self.stub
        request = stub.SerializeRequest(collector, collector._GetMethodInfo(method), arguments)
        headers = {"Cookie": stub.cookie, "SOAPAction": stub.versionId, "Content-Type": "text/xml; charset=UTF-8"}
        with self.reporting(subject):
            connection = stub.GetConnection()
            try:
                connection.request("POST", stub.path, request, headers)
                response = connection.getresponse()
                document = response.read()
            except BaseException:
                connection.close()
                raise
            stub.ReturnConnection(connection)
        plain = response.getheader("Content-Encoding", "identity").lower() == "identity"
        return (response.status if plain else 0), document

    def raise_refusal(self, missing_set: Iterable[Any] | None) -> None:
        """Raise the fault of properties that cannot be read: no permission, or no session (NotAuthenticated)."""
        for missing in missing_set or ():
            if isinstance(missing.fault, self.vim.fault.NoPermission):
                raise missing.fault


def _unreadable(error: Exception, subject: Operation, name_of: Callable[[Any], str]) -> VsphereError | None:
    """Return the error for a response that pyVmomi could not parse, or None for other exceptions.

    If the response was a fault of an unknown type, the error contains its type and text: pyVmomi parses the text before
    it looks up the type, and the KeyError contains the type, such as `urn:vim25 InvalidPowerStateFault`.
    """
    text, inside, refused = "", False, False
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == "pyVmomi.SoapAdapter":
            parser = trace.tb_frame.f_locals.get("self")
            text = str(getattr(parser, "msg", None) or text)
            refused |= bool(getattr(parser, "isFault", False))
            inside |= trace.tb_frame.f_code.co_name == "Deserialize"
        trace = trace.tb_next
    if not inside:
        return None
    if refused and isinstance(error, KeyError) and error.args:
        found = error_from(named_fault(str(error.args[0]).rsplit(" ", 1)[-1], text), subject, name_of)
    else:
        found = VsphereError(
            f"vCenter was to {subject.doing}, and pyVmomi cannot read its answer: {str(error).rstrip('.')}.",
            hint="Update pyVmomi where the module runs.",
            code=UNREADABLE,
        )
    found.unreadable = True
    return found


def _connect(params: Mapping[str, Any]) -> Session:
    for option, variable in (("hostname", "HOST"), ("username", "USER"), ("password", "PASSWORD")):
        if not params.get(option):
            raise BadConnection(f"The option {option} is missing.", hint=f"Give it, or set VMWARE_{variable}.")
    try:
        from pyVim import connect
        from pyVmomi import vim, vmodl
    except ImportError as error:
        raise MissingLibrary(
            f"The Python package pyVmomi is missing: {error}.",
            hint="Install it where the module runs: pip install pyvmomi.",
        ) from error
    import ssl

    sdk: Any = connect
    service: Any = vim.ServiceInstance
    host, port, user = params["hostname"], params["port"], params["username"]
    server = f"{host}:{port}"
    proxy: dict[str, Any] = {}
    if params.get("proxy_host"):
        proxy = {"httpProxyHost": params["proxy_host"], "httpProxyPort": params.get("proxy_port") or 80}
    if params["validate_certs"]:
        tls = ssl.create_default_context()
    else:
        # Do not load the system's certificate authorities, which takes a tenth of a second.
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE

    def login(content: Any) -> Any:
        return content.sessionManager.Login(user, params["password"], None)

    try:
        stub = sdk.SmartStubAdapter(host=host, port=port, sslContext=tls, **proxy)
        session = Session(service("ServiceInstance", stub), login)
        session.log_in()
    except vim.fault.InvalidLogin as error:
        raise Unauthorized(f"vCenter {server} does not accept the user {user} with this password.") from error
    except ssl.SSLCertVerificationError as error:
        raise BadConnection(
            f"The certificate of vCenter {server} cannot be verified: {error.verify_message}.",
            hint="Trust its authority where the module runs (SSL_CERT_FILE), or set validate_certs to false.",
        ) from error
    except vmodl.MethodFault as fault:
        raise error_from(fault, Operation(f"log {user} in at {server}")) from fault
    except (OSError, HTTPException) as error:
        raise BadConnection(
            f"vCenter {server} cannot be reached: {error}.",
            hint="Check hostname, port, and proxy_host if there is one.",
        ) from error
    except Exception as error:
        # pyVmomi raises this plain exception if the server is not a vCenter.
        if "is not a VIM server" not in str(error):
            raise
        raise BadConnection(f"What answers at {server} is not vCenter.", hint="Check hostname and port.") from error
    return session
