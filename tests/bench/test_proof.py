"""The proof of a build: a sound one passes, one with broken machine code dies and that is said."""

from __future__ import annotations

import math
import os
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.bench import kernels, proof
from localspec.bench.kernels import Tried
from localspec.bench.proof import Build, Device, Logits
from localspec.built import installed
from localspec.catalog import reader, writer
from localspec.catalog.writer import Tensor
from localspec.engine.llama.library import ours
from localspec.errors import EngineError
from localspec.microbench.kernels import difference

TRAP = {"x86_64": b"\x0f\x0b", "aarch64": bytes(4)}  # instructions that no processor has


def prove(**environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m localspec.bench.proof`, as make runs it."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "localspec.bench.proof"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_this_build_works() -> None:
    """Our kernels compute, every device loads and decodes; without a GPU that is the CPU, once."""
    build = proof.inspect()
    assert build.devices[-1].kind == "cpu"
    assert build.flaw == ""
    trials = list(proof.trials(build))
    assert [trial.failure for trial in trials] == [""] * (2 + len(build.offloading))
    assert [trial.device for trial in trials[:2]] == ["kernels", "CPU"]
    assert trials[0].said == str(kernels.tried())


def broken_libraries(folder: Path, library: str, function: str) -> Path:
    """A copy of llama.cpp's libraries in which one function is an illegal instruction."""
    copy = folder / "lib"
    shutil.copytree(installed(), copy)
    trap = TRAP[platform.machine()]
    for path in copy.glob(f"{library}.so*"):  # a wheel has a copy of it under each of its names
        data = bytearray(path.read_bytes())
        at = offset(bytes(data), function)
        data[at : at + len(trap)] = trap
        path.write_bytes(data)
    return copy


def offset(elf: bytes, function: str) -> int:
    """Where the code of an exported function lies in a 64-bit ELF file."""
    (sections,) = struct.unpack_from("<Q", elf, 40)
    size, count = struct.unpack_from("<HH", elf, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", elf, sections + size * i) for i in range(count)]
    symbols = next(head for head in heads if head[1] == 11)  # SHT_DYNSYM
    names = heads[symbols[6]][4]
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        name, _, _, home, address, _ = struct.unpack_from("<IBBHQQ", elf, at)
        start = names + name
        if home and elf[start : elf.index(b"\0", start)] == function.encode():
            return int(address - heads[home][3] + heads[home][4])
    raise LookupError(function)


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in TRAP, reason="patches an ELF file"
)
@pytest.mark.parametrize(
    ("library", "function", "said"),
    [
        ("libllama", "llama_model_load_from_file", "CPU: the worker died of SIGILL while loading"),
        ("libllama", "llama_memory_seq_pos_max", "CPU: the worker died of SIGILL while"),
        ("libggml", "ggml_backend_dev_count", "died of SIGILL"),
    ],
)
def test_a_build_that_dies_is_told_by_its_signal(
    tmp_path: Path, library: str, function: str, said: str
) -> None:
    """The proof itself lives, names the device and what it was doing, and ends with 1."""
    broken = broken_libraries(tmp_path, library, function)
    done = prove(LLAMA_CPP_LIB_PATH=str(broken), XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert said in done.stdout
    assert "well" not in done.stdout


@pytest.mark.skipif(not ours.switch, reason="there are no kernels of ours in this build")
def test_kernels_that_die_are_told(tmp_path: Path) -> None:
    """They have a process of their own, and everything else is still tried."""
    broken = broken_libraries(tmp_path, "libggml-cpu", "localspec_rows_use")
    done = prove(LLAMA_CPP_LIB_PATH=str(broken), XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "kernels: Measuring by localspec.microbench.kernels died of SIGILL" in done.stdout
    assert "CPU: loads and decodes" in done.stdout


def test_rows_that_are_not_as_if_alone_are_refused() -> None:
    """In a bit, or together far from what llama.cpp's own kernels say; a last bit is no mistake."""
    alone = np.array([[1.0, -2.0], [3.0, 0.5]], np.float32)
    nearly = np.nextafter(alone, np.float32(9))
    assert difference({1: alone[:1], 2: alone}, alone, alone) == ""
    assert difference({1: alone[:1], 2: alone}, alone, nearly) == ""
    assert "2 rows differ" in difference({1: alone[:1], 2: nearly}, alone, alone)
    assert "own kernels" in difference({2: alone}, alone, -alone)
    assert "own kernels" in difference({2: alone * np.nan}, alone * np.nan, alone)


def test_kernels_are_named_in_a_line() -> None:
    """As make says them."""
    assert str(Tried("AVX512_VNNI", ["Q4_0", "Q4_K"], "", {})) == "AVX512 VNNI for Q4_0 Q4_K"
    assert str(Tried("", [], "", {})) == "llama.cpp's own"


def test_a_library_that_is_missing_is_told(tmp_path: Path) -> None:
    """An import that fails is no signal; the loader's own words are the reason."""
    done = prove(LLAMA_CPP_LIB_PATH=str(tmp_path))
    assert done.returncode == 1
    assert "exit code 1" in done.stdout
    assert "not found" in done.stdout or "No such file" in done.stdout


SOUND = Logits(gaps=[1.0, 0.0], margins=[0.5, 2.0], first=0.5)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Logits([1.0, math.nan], [0.5, 2.0], 0.5), "not finite"),
        (Logits([1.0, math.inf], [0.5, 2.0], 0.5), "not finite"),
        (Logits([1.0, 0.0], [0.5, 2.0], 0.9), "one row and one of several differ by 0.40"),
        (Logits([1.5, 0.0], [0.5, 2.0], 0.5), "differ from the CPU's by 0.50"),
    ],
)
def test_numbers_that_cannot_be_right_are_refused(found: Logits, said: str) -> None:
    """A device that computes nonsense has loaded and decoded all the same."""
    proof.compare(SOUND, None)
    proof.compare(SOUND, SOUND)
    with pytest.raises(EngineError, match=said):
        proof.compare(found, SOUND)


def device(name: str, kind: str, id_: str = "") -> Device:
    """A device as llama.cpp would list it."""
    return Device(name, name, kind, id_, 1, 2)  # type: ignore[arg-type]


def test_layers_go_where_llama_cpp_puts_them() -> None:
    """One card behind two backends counts once, an integrated one only where there is no other."""
    cpu, blas = device("CPU", "cpu"), device("BLAS", "accel")
    first, second = device("CUDA0", "gpu", "01:00"), device("CUDA1", "gpu", "02:00")
    again, own = device("Vulkan0", "gpu", "01:00"), device("Vulkan1", "igpu", "00:02")
    assert Build("b", [cpu, blas]).offloading == []
    assert Build("b", [blas, own, cpu]).offloading == [own]
    assert Build("b", [first, second, again, own, cpu]).offloading == [first, second]


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z.]{0,20}", fullmatch=True),
        st.text(max_size=20)
        | st.booleans()
        | st.integers(0, 2**32 - 1)
        | st.floats(width=32, allow_nan=False)
        | st.lists(st.text(max_size=5), min_size=1, max_size=5)
        | st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=5),
    )
)
def test_a_header_reads_as_it_was_written(metadata: writer.Metadata) -> None:
    """Through our own parser, tensors and alignment included."""
    tensors = [Tensor("a", (3, 32), "Q4_0"), Tensor("b", (5,), "F32"), Tensor("c", (256,), "Q6_K")]
    head = writer.header(metadata, tensors)
    body = b"".join(bytes(one.num_bytes) + writer.padding(one.num_bytes) for one in tensors)
    parsed = reader.parse(head, len(head + body))
    read = {
        key: value
        if not isinstance(value, reader.Array)
        else [text.decode() for text in value.strings()]
        if value.element_type == reader.STRING
        else list(value.numbers())
        for key, value in parsed.metadata.items()
    }
    assert read == dict(metadata)
    assert [(one.name, one.shape, one.type.name) for one in parsed.tensors] == [
        ("a", (32, 3), "Q4_0"),
        ("b", (5,), "F32"),
        ("c", (256,), "Q6_K"),
    ]


def test_the_gguf_package_reads_what_we_write(tmp_path: Path) -> None:
    """Another reader than ours finds the same."""
    tensors = [Tensor("a", (3, 32), "Q4_0"), Tensor("b", (5,), "F32")]
    path = tmp_path / "ours.gguf"
    numbers = struct.pack("<5f", 1, 2, 3, 4, 5)
    data = bytes(tensors[0].num_bytes) + writer.padding(tensors[0].num_bytes)
    path.write_bytes(writer.header({"general.architecture": "none"}, tensors) + data + numbers)
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert found["a"].tensor_type is gguf.GGMLQuantizationType.Q4_0
    assert found["b"].data.tolist() == [1, 2, 3, 4, 5]
