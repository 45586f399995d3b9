# Typed view of the generated extension: what of cffi is used, and cdef/*.h in Python's words.
# A pointer to a struct has the struct's fields, as in cffi. A parameter of type `CData` may be
# `ffi.NULL`; `Readable` takes bytes too, which C borrows for the call.

from collections.abc import Callable, Iterator
from typing import Final, Generic, Literal, TypeAlias, TypeVar, final, overload

_T = TypeVar("_T")
_C = TypeVar("_C", bound=CData)

class CData:
    def __bool__(self) -> bool: ...

class Pointer(CData, Generic[_T]):
    def __getitem__(self, index: int) -> _T: ...
    def __setitem__(self, index: int, value: _T) -> None: ...

class Array(Pointer[_T]):
    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> Array[_T]: ...
    def __iter__(self) -> Iterator[_T]: ...
    def __len__(self) -> int: ...

Readable: TypeAlias = bytes | CData
Text: TypeAlias = Array[bytes]

class Engine(CData): ...
class Region(CData): ...
class Transfer(CData): ...
class Frame(CData): ...

class FabError(CData):
    code: int
    provider_code: int
    call: Text
    text: Text

class FabPlan(CData):
    nics: CData
    sources: CData
    lane_count: int
    cpu: int

class FabOptions(CData):
    provider: CData
    source: CData
    plans: CData
    worker_count: int
    polling: int
    frame_bytes: int
    receive_count: int
    quantum: int
    inflight_count: int
    inflight_bytes: int
    max_operation_bytes: int
    segments: int
    merge: int
    warmup: int
    stripe_bytes: int
    spin_ns: int
    nap_ns: int
    peer_timeout_ns: int
    frame_window_bytes: int

class FabAttributes(CData):
    provider: Text
    domain: Text
    worker_count: int
    address_bytes: int
    frame_bytes: int
    immediate_bytes: int
    key_bytes: int
    virtual_addresses: int
    wait_fd: int
    segments: int
    inflight_count: int
    writes_last: int
    max_operation_bytes: int

class FabStatistics(CData):
    operations_posted: int
    operations_completed: int
    operations_failed: int
    again: int
    bytes_written: int
    bytes_read: int
    pages: int
    immediates_received: int
    frames_sent: int
    frames_received: int
    transfers_confirmed: int
    stale_frames: int
    stale_immediates: int
    malformed_frames: int
    stray_completions: int
    lanes_failed: int
    parts_restarted: int
    sleeps: int
    wakeups: int

class Topology(CData): ...

class FabNumaNode(CData):
    memory_bytes: int
    node: int
    cpu_count: int

class FabCore(CData):
    cpu: int
    node: int

class FabPci(CData):
    link_bytes_per_s: int
    node: int
    parent: int
    kind: int
    domain: int
    bus: int
    device: int
    function: int
    class_id: int
    vendor_id: int
    device_id: int

class FabNic(CData):
    provider: Text
    domain: Text
    fabric: Text
    source: Text
    bits_per_s: int
    is_pci: int
    pci_domain: int
    pci_bus: int
    pci_device: int
    pci_function: int
    is_down: int
    usable: int

class FabInfo(CData):
    provider: Text
    domain: Text
    fabric: Text
    caps: int
    mode: int
    max_message_bytes: int
    mr_mode: int
    tx_size: int
    rx_size: int
    iov_limit: int
    rma_iov_limit: int
    inject_bytes: int
    immediate_bytes: int
    key_bytes: int
    usable: int
    refusal: Text
    source: Text

class FabRemote(CData):
    base: int
    workers: int
    keys: CData
    key_count: int

class FabPages(CData):
    page_bytes: int
    count: int
    local_index: CData
    remote_index: CData
    local_offset: int
    local_stride: int
    local_bytes: int
    remote_offset: int
    remote_stride: int
    remote_bytes: int

class FabCompletion(CData):
    kind: int
    status: int
    worker: int
    peer: int
    token: int
    sequence: int
    count: int
    quiet: int
    severed: int
    data: CData
    bytes: int
    error: FabError

# `ffi.buffer`: a view of C memory that owns nothing.
class Buffer:
    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> bytes: ...
    def __setitem__(self, index: int | slice, value: bytes) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class FFI:
    NULL: Final[CData]
    error: type[Exception]

    @overload
    def new(self, cdecl: Literal["struct fab_attributes *"]) -> FabAttributes: ...
    @overload
    def new(self, cdecl: Literal["struct fab_completion *"]) -> FabCompletion: ...
    @overload
    def new(self, cdecl: Literal["struct fab_completion[]"], init: int) -> Array[FabCompletion]: ...
    @overload
    def new(self, cdecl: Literal["struct fab_error *"]) -> FabError: ...
    @overload
    def new(self, cdecl: Literal["struct fab_info[]"], init: int) -> Array[FabInfo]: ...
    @overload
    def new(self, cdecl: Literal["struct fab_numa_node[]"], init: int) -> Array[FabNumaNode]: ...
    @overload
    def new(self, cdecl: Literal["struct fab_core[]"], init: int) -> Array[FabCore]: ...
    @overload
    def new(self, cdecl: Literal["struct fab_pci[]"], init: int) -> Array[FabPci]: ...
    @overload
    def new(self, cdecl: Literal["struct fab_nic[]"], init: int) -> Array[FabNic]: ...
    @overload
    def new(
        self, cdecl: Literal["struct fab_options *"], init: dict[str, object] = ...
    ) -> FabOptions: ...
    @overload
    def new(self, cdecl: Literal["struct fab_plan[]"], init: int) -> Array[FabPlan]: ...
    @overload
    def new(self, cdecl: Literal["struct fab_remote *"]) -> FabRemote: ...
    @overload
    def new(self, cdecl: Literal["const char *[]"], init: list[CData]) -> CData: ...
    @overload
    def new(
        self, cdecl: Literal["struct fab_pages *"], init: dict[str, object] = ...
    ) -> FabPages: ...
    @overload
    def new(self, cdecl: Literal["struct fab_statistics *"]) -> FabStatistics: ...
    @overload
    def new(self, cdecl: Literal["struct fab_engine **"]) -> Pointer[Engine]: ...
    @overload
    def new(self, cdecl: Literal["struct fab_region **"]) -> Pointer[Region]: ...
    @overload
    def new(self, cdecl: Literal["struct fab_topology **"]) -> Pointer[Topology]: ...
    @overload
    def new(self, cdecl: Literal["const char **"]) -> Pointer[CData]: ...
    @overload
    def new(self, cdecl: Literal["struct fab_transfer **"]) -> Pointer[Transfer]: ...
    @overload
    def new(
        self, cdecl: Literal["uint32_t *", "uint64_t *", "int64_t *"], init: int = ...
    ) -> Pointer[int]: ...
    @overload
    def new(
        self,
        cdecl: Literal["int64_t[]", "uint64_t[]", "uint32_t[]"],
        init: int | list[int] | tuple[int, ...],
    ) -> Array[int]: ...
    @overload
    def new(
        self, cdecl: Literal["char[]", "unsigned char[]", "uint8_t[]"], init: int | bytes
    ) -> Text: ...
    def buffer(self, cdata: CData, size: int = ...) -> Buffer: ...
    def cast(self, cdecl: str, value: int | CData) -> CData: ...
    @overload
    def from_buffer(self, python_buffer: object, /) -> Text: ...
    @overload
    def from_buffer(
        self, cdecl: str, python_buffer: object, require_writable: bool = ...
    ) -> CData: ...
    def gc(self, cdata: _C, destructor: Callable[[_C], object] | None, size: int = ...) -> _C: ...
    def memmove(self, dest: object, src: object, n: int) -> None: ...
    def release(self, cdata: CData) -> None: ...
    def sizeof(self, cdecl: str | CData) -> int: ...
    def string(self, cdata: CData, maxlen: int = ...) -> bytes: ...

@final
class Lib:
    # error.h
    def fab_strerror(self, code: int) -> CData: ...
    def fab_errno_name(self, code: int) -> CData: ...

    # engine.h
    FAB_MAX_WORKERS: Final[int]
    FAB_MAX_LANES: Final[int]
    FAB_POLLING_ADAPTIVE: Final[int]
    FAB_POLLING_BUSY: Final[int]
    FAB_WRITES_LAST_REGION: Final[int]
    FAB_WRITES_LAST_CONNECTION: Final[int]
    FAB_WRITES_LAST_PROCESS: Final[int]
    def fab_engine_open(self, options: FabOptions, engine: Pointer[Engine]) -> int: ...
    def fab_engine_fd(self, engine: Engine) -> int: ...
    def fab_engine_reap(
        self, engine: Engine, completions: Pointer[FabCompletion] | FabCompletion, capacity: int
    ) -> int: ...
    def fab_engine_stop(self, engine: Engine) -> None: ...
    def fab_engine_close(self, engine: Engine) -> None: ...
    def fab_engine_attributes(self, engine: Engine, attributes: FabAttributes) -> None: ...
    def fab_engine_statistics(self, engine: Engine, statistics: FabStatistics) -> None: ...
    def fab_engine_lane_count(self, engine: Engine, worker: int) -> int: ...
    def fab_engine_address(
        self, engine: Engine, worker: int, lane: int, address: CData, capacity: int
    ) -> int: ...

    # info.h
    def fab_libfabric_version(self) -> int: ...
    def fab_info_list(
        self,
        provider: Readable,
        source: Readable,
        rows: Array[FabInfo],
        capacity: int,
        count: Pointer[int],
    ) -> int: ...

    # topology.h
    FAB_PCI_HOST_BRIDGE: Final[int]
    FAB_PCI_BRIDGE: Final[int]
    FAB_PCI_DEVICE: Final[int]
    def fab_topology_open(
        self,
        xml: Readable,
        bytes: int,  # noqa: A002  # the name in topology.h
        topology: Pointer[Topology],
        error: FabError,
    ) -> int: ...
    def fab_topology_close(self, topology: Topology) -> None: ...
    def fab_topology_is_local(self, topology: Topology) -> int: ...
    def fab_topology_nodes(
        self, topology: Topology, rows: Array[FabNumaNode], capacity: int, count: Pointer[int]
    ) -> int: ...
    def fab_topology_cores(
        self, topology: Topology, rows: Array[FabCore], capacity: int, count: Pointer[int]
    ) -> int: ...
    def fab_topology_pcis(
        self, topology: Topology, rows: Array[FabPci], capacity: int, count: Pointer[int]
    ) -> int: ...
    def fab_topology_note_add(self, topology: Topology, note: Readable) -> int: ...
    def fab_topology_note(self, topology: Topology, index: int) -> CData: ...
    def fab_topology_xml(
        self,
        topology: Topology,
        xml: Pointer[CData],
        bytes: Pointer[int],  # noqa: A002  # the name in topology.h
        error: FabError,
    ) -> int: ...
    def fab_memory_node(self, address: int) -> int: ...
    def fab_nic_list(
        self, provider: Readable, rows: Array[FabNic], capacity: int, count: Pointer[int]
    ) -> int: ...

    # region.h
    FAB_ACCESS_LOCAL: Final[int]
    FAB_ACCESS_REMOTE_READ: Final[int]
    FAB_ACCESS_REMOTE_WRITE: Final[int]
    def fab_region_register(
        self,
        engine: Engine,
        token: int,
        address: int,
        bytes: int,  # noqa: A002  # the name in region.h
        access: int,
        key: int,
        workers: int,
        region: Pointer[Region],
    ) -> int: ...
    def fab_region_deregister(self, engine: Engine, region: Region) -> int: ...
    def fab_region_key(self, region: Region, worker: int, lane: int) -> int: ...
    def fab_region_base(self, region: Region) -> int: ...

    # peer.h
    FAB_FRAME_HELLO: Final[int]
    FAB_FRAME_MESSAGE: Final[int]
    def fab_peer_add(
        self,
        engine: Engine,
        token: int,
        cookie: int,
        addresses: Readable,
        address_bytes: int,
        lane_counts: Pointer[int],
        worker_count: int,
    ) -> int: ...
    def fab_peer_path_count(self, engine: Engine, peer: int) -> int: ...
    def fab_peer_slot(self, engine: Engine, peer: int, path: int) -> int: ...
    def fab_peer_attach(
        self,
        engine: Engine,
        peer: int,
        remote_slots: Pointer[int],
        path_count: int,
        remote_cookie: int,
        heartbeat_ns: int,
    ) -> int: ...
    def fab_peer_remove(self, engine: Engine, peer: int) -> int: ...
    def fab_connections_await(
        self,
        engine: Engine,
        worker: int,
        token: int,
        lost_ns: int,
        addresses: bytes,
        address_bytes: int,
        count: int,
    ) -> int: ...
    def fab_frame_send(
        self,
        engine: Engine,
        peer: int,
        kind: int,
        token: int,
        head: Readable,
        head_bytes: int,
        body: Readable,
        body_bytes: int,
    ) -> int: ...

    # transfer.h
    FAB_TRANSFER_READ: Final[int]
    FAB_TRANSFER_CONFIRM: Final[int]
    FAB_TRANSFER_NOTIFY: Final[int]
    FAB_PAGES_OK: Final[int]
    FAB_PAGES_LOCAL_RANGE: Final[int]
    FAB_PAGES_REMOTE_RANGE: Final[int]
    FAB_PAGES_DUPLICATE: Final[int]
    FAB_PAGES_STRIDE: Final[int]
    FAB_PAGES_NO_MEMORY: Final[int]
    def fab_pages_check(
        self, pages: FabPages, read: int, position: Pointer[int], first: Pointer[int]
    ) -> int: ...
    def fab_transfer_start(
        self,
        engine: Engine,
        peer: int,
        flags: int,
        token: int,
        sequence: int,
        region: Region,
        remote: FabRemote,
        pages: FabPages,
        transfer: Pointer[Transfer],
    ) -> int: ...
    def fab_transfer_cancel(self, engine: Engine, transfer: Transfer) -> int: ...
    def fab_transfer_bytes_done(self, transfer: Transfer) -> int: ...
    def fab_transfer_pages_done(self, transfer: Transfer) -> int: ...
    def fab_transfer_release(self, engine: Engine, transfer: Transfer) -> int: ...

    # completion.h
    FAB_WORKER_OPENED: Final[int]
    FAB_WORKER_CLOSED: Final[int]
    FAB_WORKER_FAILED: Final[int]
    FAB_REGION_REGISTERED: Final[int]
    FAB_REGION_DEREGISTERED: Final[int]
    FAB_PEER_ADDED: Final[int]
    FAB_PEER_REMOVED: Final[int]
    FAB_PEER_FAILED: Final[int]
    FAB_FRAME_SENT: Final[int]
    FAB_FRAME_RECEIVED: Final[int]
    FAB_TRANSFER_DONE: Final[int]
    FAB_TRANSFER_QUIET: Final[int]
    FAB_TRANSFER_ARRIVED: Final[int]
    FAB_LANE_FAILED: Final[int]
    FAB_PATH_FAILED: Final[int]
    FAB_CONNECTIONS_ENDED: Final[int]
    FAB_NO_PEER: Final[int]
    def fab_error_free(self, error: FabError) -> None: ...

ffi: FFI
lib: Lib
