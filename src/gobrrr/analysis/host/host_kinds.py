"""Kinds of host work other than launching, known by the names of functions, each with a remedy.

A kind is defined by the called function, never by one program's pattern. A function without a kind has no remedy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from gobrrr.model.frame_names import FROM_LIBRARY

BUILT_IN = r"^<built-in (?:function|method) "
"""Frames of built-in functions begin with this."""


@dataclass(frozen=True)
class HostKind:
    """One kind of host work. `does`: what the function does, as a clause without a subject; `remedy`: how to take it
    out of the step; `waits`: it waits, and does not use the processor; `resumed`: it is a generator, and has a frame
    for each element."""

    does: str
    remedy: str
    waits: bool = False
    resumed: bool = False


# The kinds. Their texts are shown to the user.
TENSORS = HostKind(
    "reads Python objects element by element to build tensors",
    "build one array first, torch.from_numpy(np.stack(arrays)), or keep the tensor from step to step",
)
TENSORS_TO_PYTHON = HostKind(
    "converts tensors to Python objects", "keep it a tensor; .numpy() makes an array without a copy on a CPU"
)
ARRAYS = HostKind("builds and copies NumPy arrays", "prepare the arrays once, or in the workers of a DataLoader")
TOKENS = HostKind("tokenizes text", "tokenize once before the loop, by batch, or in the workers of a DataLoader")
IMAGE_DECODING = HostKind(
    "decodes or transforms images", "do it in the workers of a DataLoader, or keep decoded images"
)
VALIDATION = HostKind(
    "checks the arguments of a distribution",
    "torch.distributions.Distribution.set_default_validate_args(False), once the program is right",
)
DEEP_COPIES = HostKind("deep-copies Python objects", "copy once before the loop; copy tensors with clone() or copy_()")
PICKLES = HostKind("serializes or deserializes objects", "do it outside of the step, or pass tensors as they are")
RANDOM = HostKind("draws random numbers one by one", "draw all in one call of torch.rand or np.random.Generator")
SAVES = HostKind(
    "writes tensors to a file or reads them from one",
    "save every N steps; torch.distributed.checkpoint.async_save writes in the background",
)
TEXT = HostKind("processes text", "tokenize once before the loop, or in the workers of a DataLoader")
TENSOR_TEXT = HostKind("formats a tensor's numbers as text", "do not print the tensor, or print it rarely")
STATE = HostKind(
    "collects or loads the model's state_dict()",
    "only when the copy is needed; torch._foreach_copy_(kept, list(model.parameters())) copies into kept tensors",
)
MEMBERS = HostKind(
    "iterates over the model's modules and parameters",
    "keep the list, or what you read from it, from step to step; next(model.parameters()) where one is enough; train() "
    "and eval() only where the mode changes",
    resumed=True,
)
PACKING = HostKind(
    "compresses, decompresses or hashes", "do it in the workers of a DataLoader, or once before the loop"
)
DATABASE = HostKind("queries a database", "query ahead, in the workers of a DataLoader or in a thread", waits=True)
FRAMES = HostKind("processes data frames", "convert the columns to tensors once before the loop")
SEQUENCES = HostKind("processes Python objects one by one", "keep the numbers in a tensor or an array")
STACK_INSPECTION = HostKind("inspects Python's stack or source", "leave it out of the step")
EVENTS = HostKind("runs an event loop", "run it in a thread of its own, and read its answer a step later", waits=True)
FILES = HostKind("reads files", "read ahead: in the workers of a DataLoader or in a thread")
SLEEP = HostKind("sleeps", "remove the sleep, or wait in a thread", waits=True)
LOCK = HostKind(
    "waits for another thread", "start the other thread's work earlier, so that its result is ready", waits=True
)
PROCESS = HostKind("waits for another process", "start it earlier, and read its result a step later", waits=True)
PIPE = HostKind(
    "waits for another process at a pipe or a socket",
    "send the request ahead, and read the answer a step later",
    waits=True,
)
NETWORK = HostKind(
    "waits for the network", "send the request ahead in a thread, and read the answer a step later", waits=True
)

_IO = r"of (?:_io\.)?(?:TextIOWrapper|Buffered\w+|FileIO)\b"
"""Python's file objects."""

_BY_NAME = (
    (VALIDATION, r"torch/distributions/(constraints|distribution)\.py\(\d+\): (check|__init__|_validate_sample)$"),
    (TOKENS, r"(tokenizers|sentencepiece|tiktoken)/|transformers/tokenization_\w+\.py\(|transformers/.*tokenization_"),
    (IMAGE_DECODING, r"(PIL|cv2|imageio|skimage|albumentations)/|torchvision/(io|transforms)/"),
    (SAVES, r"torch/serialization\.py\(\d+\): (save|load)$|safetensors/.*: (save|load)\w*$"),
    (SAVES, r"numpy/lib/\w*npyio\w*\.py\(\d+\): (save|load|savez)\w*$"),
    (TENSOR_TEXT, r"torch/_tensor_str\.py\(\d+\): _str$"),
    (STATE, r"torch/nn/modules/module\.py\(\d+\): (state_dict|load_state_dict)$"),
    (MEMBERS, r"torch/nn/modules/module\.py\(\d+\): ((named_)?(parameters|buffers|modules|children)|_named_members)$"),
    (MEMBERS, r"torch/nn/modules/module\.py\(\d+\): (train|eval)$"),
    (FRAMES, r"(pandas/(?!io/)|polars/)"),
    (TEXT, r"(re|regex)/|(sre_\w+|re|string|textwrap|difflib)\.py\("),
    (STACK_INSPECTION, r"(inspect|traceback|linecache|tokenize)\.py\("),
    (EVENTS, r"asyncio/\w+\.py\(\d+\): (run|run_until_complete|run_forever|_run_once)$"),
    (DATABASE, r"(sqlite3|sqlalchemy|psycopg2?|pymongo|duckdb)/"),
    (DEEP_COPIES, r"copy\.py\(\d+\): (deepcopy|copy)$"),
    (PROCESS, r"subprocess\.py\(\d+\): "),
    (PROCESS, r"multiprocessing/(popen_\w+|process|pool)\.py\(\d+\): (wait|poll|join|get|map)$"),
    (PIPE, r"multiprocessing/(connection|queues|managers)\.py\(\d+\): (_?recv\w*|_?send\w*|poll|wait|get|put)$"),
    (NETWORK, r"(requests|urllib3|httpx|aiohttp|http|urllib|ssl|grpc|boto3|botocore|redis)/"),
    (NETWORK, r"(ssl|socket)\.py\(\d+\): (recv|recv_into|read|readinto|send|sendall|connect|create_connection)$"),
    (LOCK, r"(threading|queue)\.py\(\d+\): (wait|wait_for|join|acquire|__enter__|get|put|_wait_for_tstate_lock)$"),
    (PROCESS, r"multiprocessing/synchronize\.py\(\d+\): (wait|wait_for|acquire|__enter__)$"),
    (LOCK, r"concurrent/futures/\w+\.py\(\d+\): (result|wait|exception|as_completed)$"),
    (PICKLES, r"(pickle|json/(__init__|decoder))\.py\(\d+\): (loads?|dumps?|decode|raw_decode)$"),
    (FILES, r"(h5py|zarr|pyarrow|pandas/io|safetensors|lmdb)/"),
    (RANDOM, r"random\.py\(\d+\): (sample|shuffle|choices?|randint|randrange|uniform|gauss)$"),
    (ARRAYS, r"numpy/"),
)  # fmt: skip
"""Files and functions of libraries, as the profiler names their frames; the first match decides."""

_BY_BUILT_IN = (
    (TENSORS, r"(?:tensor|as_tensor|asarray) of type "),
    (TENSORS_TO_PYTHON, r"tolist of (?:Tensor|Parameter|numpy)"),
    (SLEEP, r"sleep>"),
    (LOCK, r"(?:acquire|__enter__) of _thread\.|(?:get|put) of _queue\."),
    (PROCESS, r"(?:waitpid|wait4|fork_exec|posix_spawn)\b"),
    (PIPE, r"(?:poll of select\.|select>|(?:wait|poll) of select\.epoll)"),
    (NETWORK, r"(?:recv\w*|send\w*|accept|connect) of _?socket"),
    (PICKLES, r"(?:loads?|dumps?)>|(?:load|dump) of _pickle\."),
    (FILES, rf"(?:read\w*) {_IO}|(?:open|listdir|scandir|stat)>"),
    (TEXT, r"(?:findall|finditer|sub|subn|split|match|search|fullmatch) of re\.Pattern\b"),
    (TEXT, r"(?:split|rsplit|splitlines|replace|translate|encode|decode|format|join) of (?:str|bytes)\b"),
    (PACKING, r"(?:compress|decompress|crc32|adler32|md5|sha\d+|openssl_\w+|blake2\w)\b"),
    (DATABASE, r"\w+ of sqlite3\."),
    (SEQUENCES, r"(?:sorted|sum|min|max|any|all)>|sort of list\b"),
    (RANDOM, r"(?:random|getrandbits|randbytes) of (?:_random\.)?Random\b"),
    (ARRAYS, r"(?:array|fromiter|concatenate|frombuffer|ascontiguousarray|zeros|empty|copyto)>|\w+ of numpy\."),
)  # fmt: skip
"""The same for built-in functions."""

_PATTERNS = tuple((kind, re.compile(FROM_LIBRARY + f"(?:{text})")) for kind, text in _BY_NAME) + tuple(
    (kind, re.compile(BUILT_IN + f"(?:{text})")) for kind, text in _BY_BUILT_IN
)
"""All patterns of kinds, in order."""

_STREAM = re.compile(BUILT_IN + rf"(?P<function>\w+) {_IO}.* at (?P<address>0x[0-9a-f]+)>")
"""A method of a file object, with the object's address."""


@lru_cache(maxsize=1 << 14)
def _named(name: str) -> HostKind | None:
    return next((kind for kind, pattern in _PATTERNS if pattern.search(name)), None)


def kind_of(name: str, streams: Mapping[str, str]) -> HostKind | None:
    """The kind of a Python frame, by its name in the profile; None where it has none.

    `streams`: what each file object is connected to, by its address, where that is known (`Recording.streams`).
    """
    return PIPE if to_another(name, streams) else _named(name)


def to_another(name: str, streams: Mapping[str, str]) -> bool:
    """Whether a frame reads or writes a pipe or a socket to another process."""
    match = _STREAM.match(name) if streams else None
    return match is not None and match["address"] in streams


_CALLED = re.compile(r"<built-in (?:function|method) (?P<name>[^ >]+)(?: of (?P<owner>type|[\w.]+))?")
_FRAME = re.compile(r"(?P<file>[^<>()]+)\.py\(\d+\): (?P<function>.+)", re.DOTALL)
"""The name of a function in a frame's name: of a built-in one, and of one with a file."""


def called(name: str) -> str:
    """The name of a frame's function, with parentheses: "tensor()", "own()"."""
    if match := _CALLED.match(name):
        return f"{match['name']}()"
    match = _FRAME.fullmatch(name)
    return f"{match['function']}()" if match is not None else name
