# LocalSpec from a clean clone: `make chat`, `make test`.
#
# Needs Python 3.11+, make and a C++ compiler; cmake and ninja come from PyPI when they are missing.
# Writes to .venv and to the user's own cache, data and state directories, nowhere else;
# `make bench-gpu` also to .venv-gpu and bench-gpu.
# Kept to POSIX sh and GNU make 3.81, which is what macOS has.

VENV := .venv
DEVICE := gpu
BIN := $(VENV)/bin
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11
LLAMA := $(shell sed -n 's/.*"\(llama-cpp-python==.*\)".*/\1/p' pyproject.toml)

# A prompt is text: the dollars in it are not make's, and a shell sees it as a variable only.
ifeq ($(origin PROMPT),command line)
override PROMPT := $(value PROMPT)
export PROMPT
else
unexport PROMPT
endif

.PHONY: help chat install lint test remote-test clean llama-server bench-gpu
.DELETE_ON_ERROR:

help:
	@echo 'make chat [PROMPT="..."]  install, pull the models, start the daemon and chat'
	@echo 'make test                 every check, the tests on the real pair of models included'
	@echo 'make remote-test          layers on other machines and upstreams, with real ones on loopback'
	@echo 'make install              .venv with LocalSpec and llama.cpp compiled for this machine'
	@echo 'make lint                 ruff and mypy'
	@echo 'make llama-server         llama.cpp of the same version beside it, to compare with'
	@echo 'make bench-gpu            everything that a report about this NVIDIA GPU needs'
	@echo 'make clean                remove .venv and what the checks left behind'

chat: $(VENV)/.installed
	@$(BIN)/localspec models pull
	@if [ -n "$$PROMPT" ]; then exec $(BIN)/localspec chat -- "$$PROMPT" </dev/null; \
	else exec $(BIN)/localspec chat; fi

install: $(VENV)/.installed

lint: $(VENV)/.checks
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint
	$(BIN)/localspec models pull
	$(BIN)/pytest -rs

remote-test:
	@$(MAKE) --no-print-directory VENV=.venv-remote REMOTE=1 .venv-remote/.checks llama-server
	@.venv-remote/bin/python -c 'from localspec.engine import rpc; rpc.require()'
	@.venv-remote/bin/pytest -rs tests/worker/test_remotes.py tests/worker/test_rpc_host.py \
		tests/daemon/test_remote.py tests/daemon/test_llama_server.py

llama-server: $(BIN)/python
	@sh -eu -c "$$LLAMA_SERVER"

bench-gpu:
	@if [ $(DEVICE) = gpu ]; then sh -eu -c "$$NEED_CUDA"; fi
	@$(MAKE) --no-print-directory VENV=.venv-$(DEVICE) .venv-$(DEVICE)/.checks
	@.venv-$(DEVICE)/bin/localspec models pull
	@.venv-$(DEVICE)/bin/python -m localspec.bench.gpu --device $(DEVICE) $(ARGS)

clean:
	rm -rf .venv .venv-gpu .venv-cpu .venv-remote .mypy_cache .pytest_cache .ruff_cache .hypothesis

# --- installation: each step leaves a file in VENV that make can date ----------------------------

export FIND_PYTHON COMPILE LLAMA_SERVER NEED_CUDA

$(BIN)/python:
	@sh -eu -c "$$FIND_PYTHON"

$(VENV)/.llama: pyproject.toml $(wildcard localspec/engine/native/*) $(BIN)/python
	@$(BIN)/python -m pip install -q 'pip>=25.1'
	@sh -eu -c "$$COMPILE" > $@

$(VENV)/.installed: $(VENV)/.llama
	@echo "installing LocalSpec into $(VENV)"
	@$(BIN)/pip install -q --force-reinstall --no-deps "$$(cat $(VENV)/.llama)"
	@$(BIN)/pip install -q -e .
	@touch $@

$(VENV)/.checks: $(VENV)/.installed
	@echo "installing ruff, mypy and pytest into $(VENV)"
	@$(BIN)/pip install -q --group dev
	@touch $@

define FIND_PYTHON
for python in $(PYTHON); do
    if "$$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "creating $(VENV) with $$("$$python" --version)"
        rm -f $(VENV)/.llama $(VENV)/.installed $(VENV)/.checks
        exec "$$python" -m venv $(VENV)
    fi
done
echo "LocalSpec needs Python 3.11 or newer with the venv module; tried: $(PYTHON)." >&2
echo "Debian, Ubuntu: sudo apt install python3-venv. macOS: brew install python." >&2
echo "Or name one: make PYTHON=/path/to/python3" >&2
exit 1
endef

# What shapes llama.cpp on this machine; sets `built`, the directory of what was compiled so. It is a
# cache of our own, keyed by all of that, because pip's cache forgets the flags a wheel came from.
#
# * AMX: GCC before 12.4 and 13.3 takes the stores that set up the tiles for dead, and the kernels
#   crash; so on such a CPU GCC is told to keep them. And llama.cpp gets our own kernels for few rows
#   there (localspec/engine/native): the same bits, for 8 rows in less than half the time.
# * CUDA where there are both a compiler for it and a card; Metal is on by default.
# * CMAKE_ARGS of the caller come last and win.
define TOOLCHAIN
if ! command -v $(CXX) >/dev/null; then
    echo "llama.cpp is compiled here and there is no C++ compiler: $(CXX)." >&2
    echo "Debian, Ubuntu: sudo apt install build-essential. macOS: xcode-select --install." >&2
    exit 1
fi
PATH="$$PATH:/usr/local/cuda/bin"
keep_stores=
native=
if grep -q amx_int8 /proc/cpuinfo 2>/dev/null; then
    native=$(CURDIR)/localspec/engine/native
    if ! $(CXX) -dM -E -x c++ /dev/null 2>/dev/null | grep -q __clang__; then
        keep_stores="-fno-dse -fno-tree-dse"
    fi
fi
cuda=
if command -v nvcc >/dev/null && nvidia-smi -L >/dev/null 2>&1; then cuda=-DGGML_CUDA=on; fi
export CXXFLAGS="$${CXXFLAGS:-} $$keep_stores"
export CMAKE_ARGS="-DLLAVA_BUILD=OFF $$cuda $${CMAKE_ARGS:-}"
key=$$({
    echo "$(LLAMA) $$CMAKE_ARGS $$CXXFLAGS"
    if [ "$$native" ]; then cat "$$native"/*; fi
    $(CXX) --version
    $(BIN)/python -c 'import sysconfig; print(sysconfig.get_platform())'
    grep -m 1 -E '^(flags|Features)' /proc/cpuinfo || sysctl -n machdep.cpu.brand_string
} 2>/dev/null | cksum | tr ' ' -)
built="$${XDG_CACHE_HOME:-$$HOME/.cache}/localspec/wheels/$$key"
mkdir -p "$$built"
if [ "$$native" ]; then
    export CMAKE_ARGS="-DCMAKE_PROJECT_ggml_INCLUDE='$$native/rows.cmake' $$CMAKE_ARGS"
fi
[ -t 2 ] && show='{ printf "\r%s ", $$1; fflush() } END { print "" }' || show='{}'
work=$$(mktemp -d "$$built/XXXXXX")
trap 'rm -rf "$$work"' EXIT
trap 'exit 130' HUP INT TERM
endef

# Prints the path of a llama-cpp-python wheel compiled for this machine.
#
# No LLAVA, no common: LocalSpec uses neither, and they are most of the compile time. The package
# forces `common` on in CMake's cache; a plain variable of that name goes before the cache.
define COMPILE
$(TOOLCHAIN)
set -- "$$built"/*.whl
if [ ! -f "$$1" ]; then
    log=$$PWD/$(VENV)/llama.log
    echo "compiling llama.cpp for this machine, one to six minutes; log: $$log" >&2
    echo 'set(LLAMA_BUILD_COMMON OFF)' > "$$work/lean.cmake"
    CMAKE_ARGS="-DCMAKE_PROJECT_llama_cpp_INCLUDE='$$work/lean.cmake' $$CMAKE_ARGS" \
        $(BIN)/pip wheel -v --no-cache-dir --no-deps --no-binary llama-cpp-python \
        --wheel-dir "$$work" "$(LLAMA)" 2>&1 |
        tee "$$log" | awk "/^ *\[[0-9]+\/[0-9]+\] / $$show" >&2
    set -- "$$work"/*.whl
    if [ ! -f "$$1" ]; then
        tail -n 40 "$$log" | cut -c 1-200 >&2
        echo "llama.cpp did not compile; the whole log is $$log" >&2
        exit 1
    fi
    mv "$$1" "$$built/"
    set -- "$$built"/*.whl
fi
echo "$$1"
endef

# llama-server of the llama.cpp that the wheel has, out of the same source distribution and with the
# same flags, so that a comparison measures two programs and not two builds. One static program: it
# loads no library of another version. The web page it could show would be downloaded; it has none.
define LLAMA_SERVER
$(TOOLCHAIN)
if [ ! -x "$$built/llama-server" ]; then
    log=$$PWD/$(VENV)/llama-server.log
    echo "compiling llama-server, two to ten minutes; log: $$log" >&2
    if ! command -v cmake >/dev/null; then
        $(BIN)/pip install -q --target "$$work/tools" cmake ninja
        export PATH="$$work/tools/bin:$$PATH" PYTHONPATH="$$work/tools"
    fi
    if command -v ninja >/dev/null; then export CMAKE_GENERATOR=Ninja; fi
    $(BIN)/pip download -q --no-deps --no-binary llama-cpp-python -d "$$work" "$(LLAMA)"
    tar -xzf "$$work"/*.tar.gz -C "$$work"
    eval "set -- $$CMAKE_ARGS"
    {
        cmake -S "$$work"/llama_cpp_python-*/vendor/llama.cpp -B "$$work/build" \
            -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF \
            -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF \
            -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_NUMBER=0 \
            -DLLAMA_BUILD_COMMIT="$(subst ==,-,$(LLAMA))" "$$@" &&
            cmake --build "$$work/build" --target llama-server \
                --parallel "$$(getconf _NPROCESSORS_ONLN)"
    } 2>&1 | tee "$$log" | awk "/^ *\[[0-9]+\/[0-9]+\] / $$show" >&2
    if [ ! -x "$$work/build/bin/llama-server" ]; then
        tail -n 40 "$$log" | cut -c 1-200 >&2
        echo "llama-server did not compile; the whole log is $$log" >&2
        exit 1
    fi
    mv "$$work/build/bin/llama-server" "$$built/"
fi
ln -sf "$$built/llama-server" $(BIN)/llama-server
echo "$(BIN)/llama-server"
endef

define NEED_CUDA
PATH="$$PATH:/usr/local/cuda/bin"
if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "No NVIDIA GPU answers here (nvidia-smi -L); run this where one does, with its driver." >&2
    exit 1
fi
if ! command -v nvcc >/dev/null; then
    echo "There is a GPU and no CUDA compiler (nvcc): install the CUDA toolkit, or put its bin" \
        "directory on PATH." >&2
    exit 1
fi
endef
