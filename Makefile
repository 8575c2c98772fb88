# LocalSpec from a clean clone: `make chat`, `make test`.
#
# Needs Python 3.11+, make and a C++ compiler; cmake and ninja come from PyPI when they are missing.
# Writes to .venv and to the user's own cache, data and state directories, nowhere else;
# `make bench-gpu` also to .venv-gpu and bench-gpu.
# Kept to POSIX sh and GNU make 3.81, which is what macOS has.

VENV := .venv
DEVICE := gpu
-include $(VENV)/chosen.mk
BACKEND ?= auto
REMOTE ?=
BUILT ?= auto/
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

.PHONY: help chat install lint test storm mutants peer-tests clients remote-test kernels isa clean \
	llama-server bench-gpu
.DELETE_ON_ERROR:

help:
	@echo 'make chat [PROMPT="..."]  install, pull the models, start the daemon and chat'
	@echo 'make test                 every check, the tests on the real pair of models included'
	@echo 'make storm                kills, rude clients and broken files for two hours, with a report'
	@echo 'make mutants [ONLY=WORD]  mistakes are planted one by one, and the tests must notice each'
	@echo 'make peer-tests           the tests of llama.cpp for its own server, against this daemon'
	@echo 'make clients              every client on the real pair of models; those from npm are 1.5 GB'
	@echo 'make remote-test          layers on other machines and upstreams, with real ones on loopback'
	@echo 'make kernels              the kernels of every instruction set that runs here, bit by bit, and of ARM,'
	@echo '                          and models of every kind by each of them'
	@echo 'make install              .venv with LocalSpec and llama.cpp compiled for this machine'
	@echo '  BACKEND=NAME            cuda, hip, vulkan, metal or cpu instead of what is found (docs/gpu.md)'
	@echo '  REMOTE=1                able to use other machines; both are remembered'
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
	@$(MAKE) --no-print-directory isa ISA=AMX > /dev/null
	$(BIN)/localspec models pull
	$(BIN)/pytest -rs -n 2 --dist loadfile --no-loadscope-reorder

storm: $(VENV)/.checks
	$(BIN)/pytest -rs -s -m storm tests/storm tests/clients

mutants: $(VENV)/.checks
	@PYTHONPATH=tests $(BIN)/python -m mutants $(ONLY)

peer-tests: $(VENV)/.checks
	@sh -eu -c "$$PEER_TESTS"

clients: $(VENV)/.checks
	@mkdir -p $(VENV)/npm
	@cp tests/clients/npm/* $(VENV)/npm
	@cd $(VENV)/npm && npm install --no-audit --no-fund --loglevel=error
	@$(BIN)/localspec models pull
	@$(BIN)/pytest -rs -s -m clients tests/clients

remote-test:
	@$(MAKE) --no-print-directory VENV=.venv-remote REMOTE=1 .venv-remote/.checks llama-server
	@.venv-remote/bin/python -c 'from localspec.engine import rpc; rpc.require()'
	@.venv-remote/bin/pytest -rs tests/worker/test_remotes.py tests/worker/test_rpc_host.py \
		tests/daemon/test_remote.py tests/daemon/test_llama_server.py tests/laws/test_experts_law.py

kernels: $(VENV)/.checks
	@sh -eu -c "$$KERNELS"

# Where ggml's CPU library for one instruction set is, which may be less than this CPU has; the tests ask.
isa:
	@sh -eu -c "$$ONE_ISA"

llama-server: $(BIN)/python
	@sh -eu -c "$$LLAMA_SERVER"

bench-gpu:
	@if [ $(DEVICE) = gpu ]; then sh -eu -c "$$NEED_CUDA"; fi
	@$(MAKE) --no-print-directory VENV=.venv-$(DEVICE) .venv-$(DEVICE)/.installed
	@.venv-$(DEVICE)/bin/localspec models pull
	@.venv-$(DEVICE)/bin/python -m localspec.bench.gpu --device $(DEVICE) $(ARGS)

clean:
	rm -rf .venv .venv-gpu .venv-cpu .venv-remote .mypy_cache .pytest_cache .ruff_cache .hypothesis

# --- installation: each step leaves a file in VENV that make can date ----------------------------

export FIND_PYTHON BUILD KERNELS ONE_ISA LLAMA_SERVER PEER_TESTS NEED_CUDA

$(BIN)/python:
	@sh -eu -c "$$FIND_PYTHON"

$(VENV)/.installed: pyproject.toml $(wildcard localspec/engine/native/*) $(BIN)/python
	@$(BIN)/python -m pip install -q 'pip>=25.1'
	@sh -eu -c "$$BUILD"
	@printf '%s\n' 'BACKEND ?= $(BACKEND)' 'REMOTE ?= $(REMOTE)' 'BUILT := $(BACKEND)/$(REMOTE)' \
		> $(VENV)/chosen.mk
	@touch $@

ifneq ($(BACKEND)/$(REMOTE),$(BUILT))
.PHONY: $(VENV)/.installed
endif

$(VENV)/.checks: $(VENV)/.installed
	@echo "installing ruff, mypy and pytest into $(VENV)"
	@$(BIN)/pip install -q --group dev
	@$(BIN)/pip install -q --no-deps --group clients-apart
	@touch $@

define FIND_PYTHON
for python in $(PYTHON); do
    if "$$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "creating $(VENV) with $$("$$python" --version)"
        rm -f $(VENV)/.installed $(VENV)/.checks $(VENV)/chosen.mk
        exec "$$python" -m venv $(VENV)
    fi
done
echo "LocalSpec needs Python 3.11 or newer with the venv module; tried: $(PYTHON)." >&2
echo "Debian, Ubuntu: sudo apt install python3-venv. macOS: brew install python." >&2
echo "Or name one: make PYTHON=/path/to/python3" >&2
exit 1
endef

# What computes besides the CPU: the first that is found, or what BACKEND names. docs/gpu.md says more.
# Name, flag of llama.cpp, compiler, whether a device answers, what to install for it.
define BACKENDS
offer cuda   -DGGML_CUDA=ON    nvcc   nvidia "the CUDA toolkit that fits the driver"
offer hip    -DGGML_HIP=ON     hipcc  amd    "ROCm 6.1 or newer with hipBLAS and rocBLAS"
offer vulkan -DGGML_VULKAN=ON  glslc  vulkan "glslc, spirv-headers and Vulkan headers 1.3.272 or later"
offer metal  -DGGML_METAL=ON   xcrun  apple  "Xcode's command line tools: xcode-select --install"
offer cpu    -DGGML_METAL=OFF  $(CXX) true   "a C++ compiler"
endef

define DEVICES
nvidia() { nvidia-smi -L; }
amd() { rocminfo | grep -q gfx; }
apple() { [ "$$(uname)" = Darwin ]; }
vulkan() {
    if command -v vulkaninfo; then vulkaninfo --summary | grep -q 'TYPE_.*_GPU'
    else ls /dev/dri/renderD*; fi
}
ready() {
    command -v "$$1" && { [ "$$1" != glslc ] || {
        printf '#include <%s>\n' vulkan/vulkan.h spirv/unified1/spirv.hpp
        printf '#ifndef VK_EXT_layer_settings\n#error old\n#endif\n'
    } | $(CXX) -E -x c++ -; }
}
offer() {
    if [ "$(BACKEND)" = "$$1" ]; then
        ready "$$3" >/dev/null 2>&1 || {
            echo "BACKEND=$$1 needs $$3 and what belongs to it, and that is not here. Install $$5." >&2
            exit 1
        }
    elif [ "$(BACKEND)" != auto ] || [ "$$backend" ] || ! "$$4" >/dev/null 2>&1; then
        return 0
    elif ! ready "$$3" >/dev/null 2>&1; then
        echo "There is a device for $$1, and it stays unused: to use it, install $$5." >&2
        return 0
    fi
    backend=$$1 flags=$$2 compiler=$$3
}
endef

# What shapes llama.cpp on this machine; sets `built`, the directory of what was compiled so. It is a
# cache of our own, keyed by all of that, because pip's cache forgets the flags a wheel came from.
#
# * On a CPU with AVX2 or more, or with ARM's dot products, llama.cpp gets our own kernels for few rows
#   (localspec/engine/native): the same bits, on x86 in a third to half of the time. The proof compares
#   these bits and names the kernels.
# * AMX: GCC before 12.4 and 13.3 takes the stores that set up the tiles for dead, and the kernels
#   crash; so on such a CPU GCC is told to keep them.
# * `hook PROJECT FILE` lets CMake include a file of ours at the end of that project of llama.cpp's.
# * CMAKE_ARGS of the caller come last and win.
define TOOLCHAIN
if ! command -v $(CXX) >/dev/null; then
    echo "llama.cpp is compiled here and there is no C++ compiler: $(CXX)." >&2
    echo "Debian, Ubuntu: sudo apt install build-essential. macOS: xcode-select --install." >&2
    exit 1
fi
PATH="$$PATH:/usr/local/cuda/bin:/opt/rocm/bin"
backend=
$(DEVICES)
$(BACKENDS)
if [ -z "$$backend" ]; then
    echo "BACKEND=$(BACKEND) is none of auto, cuda, hip, vulkan, metal and cpu." >&2
    exit 1
fi
if [ "$$backend" = hip ]; then export HIPCXX="$${HIPCXX:-$$(hipconfig -l)/clang}"; fi
native=$(CURDIR)/localspec/engine/native
hook() {
    hooks="$$hooks -DCMAKE_PROJECT_$$1_INCLUDE='$$native/$$2'"
    no_hooks="$$no_hooks -DCMAKE_PROJECT_$$1_INCLUDE=/dev/null"
}
hooks="-DCMAKE_PROJECT_llama.cpp_INCLUDE='$$native/edits.cmake'" no_hooks=-DLOCALSPEC_PLAIN=ON
keep_stores=
if grep -qwE 'avx2|asimddp' /proc/cpuinfo 2>/dev/null; then hook ggml rows.cmake; fi
if grep -q amx_int8 /proc/cpuinfo 2>/dev/null; then
    if ! $(CXX) -dM -E -x c++ /dev/null 2>/dev/null | grep -q __clang__; then
        keep_stores="-fno-dse -fno-tree-dse"
    fi
fi
export CXXFLAGS="$${CXXFLAGS:-} $$keep_stores"
export CMAKE_ARGS="-DLLAVA_BUILD=OFF $$flags $(if $(REMOTE),-DGGML_RPC=ON) $${CMAKE_ARGS:-}"
key=$$({
    echo "$(LLAMA) $$CMAKE_ARGS $$CXXFLAGS $${LDFLAGS:-}"
    cat "$$native"/*
    $(CXX) --version
    "$$compiler" --version
    $(BIN)/python -c 'import sysconfig; print(sysconfig.get_platform())'
    grep -m 1 -E '^(flags|Features)' /proc/cpuinfo || sysctl -n machdep.cpu.brand_string
} 2>/dev/null | cksum | tr ' ' -)
built="$${XDG_CACHE_HOME:-$$HOME/.cache}/localspec/wheels/$$key"
mkdir -p "$$built"
export CMAKE_ARGS="$$hooks $$CMAKE_ARGS"
[ -t 2 ] && show='{ printf "\r%s ", $$1; fflush() } END { print "" }' || show='{}'
work=$$(mktemp -d "$$built/XXXXXX")
trap 'rm -rf "$$work"' EXIT
trap 'exit 130' HUP INT TERM
unpack() {
    $(BIN)/pip download -q --no-deps --no-binary llama-cpp-python -d "$$work" "$(LLAMA)"
    tar -xzf "$$work"/*.tar.gz -C "$$work"
    mv "$$work"/llama_cpp_python-*/ "$$work/source"
}
endef

# What cures a build that does not work, in the order in which it is tried. Each is compiled in the
# directory of the one before, so that what differs is made again and nothing else. A cure that would
# change nothing here is left out.
#
# * A linker that finds no libstdc++.so puts a libstdc++ into each library, and these mistake each
#   other's symbols for their own: in a process with more libraries the first stream crashes.
define CURES
only() { if [ "$$(uname)" != Darwin ]; then echo "$$1"; fi; }
inside="$$(only "-DCMAKE_SHARED_LINKER_FLAGS='$${LDFLAGS:-} -Wl,--exclude-libs,ALL'")"
attempt "for this machine ($$backend)"
attempt "with the C++ runtime kept inside each library" "$$inside"
attempt "without LocalSpec's own code in it" "$$inside" "$$no_hooks"
if [ "$(BACKEND)" = auto ] || [ "$$backend" = cpu ]; then
    no_gpu="-DGGML_CUDA=OFF -DGGML_HIP=OFF -DGGML_VULKAN=OFF -DGGML_METAL=OFF"
    if [ "$$backend" = cpu ]; then no_gpu=; fi
    attempt "without the GPU" "$$inside" "$$no_gpu"
    attempt "with plain kernels for any CPU" "$$inside" "$$no_hooks" "$$no_gpu" \
        "-DGGML_NATIVE=OFF -DGGML_CPU_REPACK=OFF"
fi
endef

# Installs a llama-cpp-python compiled for this machine, and LocalSpec, once they have proved that they
# work here: only then a wheel enters the cache.
#
# No LLAVA, no common: LocalSpec uses neither, and they are most of the compile time. The package
# forces `common` on in CMake's cache; a plain variable of that name goes before the cache.
define BUILD
$(TOOLCHAIN)
log=$$PWD/$(VENV)/llama.log
tried=
works() {
    echo "installing LocalSpec into $(VENV)" >&2
    $(BIN)/pip install -q --force-reinstall --no-deps "$$1" && $(BIN)/pip install -q -e . &&
        $(BIN)/python -P -m localspec.bench.proof >&2 2>> "$$log"
}
compile() {
    rm -rf "$$work/source/llama_cpp/lib" "$$work/said"
    CMAKE_ARGS="-DCMAKE_PROJECT_llama_cpp_INCLUDE='$$work/lean.cmake' $$CMAKE_ARGS $$1" \
        $(BIN)/pip wheel -v --no-cache-dir --no-deps -C "build-dir=$$work/build" \
        --wheel-dir "$$work" "$$work/source" 2>&1 |
        tee -a "$$log" "$$work/said" | awk "/^ *\[[0-9]+\/[0-9]+\] / $$show" >&2
    [ -f "$$work"/*.whl ]
}
attempt() {
    what=$$1
    shift
    arguments=$$(echo $$*)
    case "$$tried" in *"<$$arguments>"*) return 0 ;; esac
    tried="$$tried<$$arguments>"
    echo "compiling llama.cpp $$what; log: $$log" >&2
    if ! compile "$$arguments"; then
        echo "it did not compile: $$(grep -i -m 1 -E 'error[: ]' "$$work/said" | cut -c 1-200)" >&2
    elif works "$$work"/*.whl; then
        mv "$$work"/*.whl "$$built/"
        echo "llama.cpp works $$what" >&2
        exit 0
    fi
    rm -f "$$work"/*.whl
}
set -- "$$built"/*.whl
if [ -f "$$1" ]; then
    : > "$$log"
    if works "$$1"; then exit 0; fi
    echo "the llama.cpp that was compiled here before does not work any more" >&2
    rm -f "$$1"
fi
: > "$$log"
unpack
echo 'set(LLAMA_BUILD_COMMON OFF)' > "$$work/lean.cmake"
$(CURES)
echo "llama.cpp does not work here; the whole log is $$log." >&2
echo "What it usually lacks: a complete C++ compiler (Debian, Ubuntu: sudo apt install" \
    "build-essential; Fedora: sudo dnf install gcc-c++; macOS: xcode-select --install) or, for a" \
    "GPU, a toolkit that fits its driver (docs/gpu.md; make install BACKEND=cpu does without)." >&2
exit 1
endef

define CMAKE_AND_SOURCE
if ! command -v cmake >/dev/null; then
    $(BIN)/pip install -q --target "$$work/tools" cmake ninja
    export PATH="$$work/tools/bin:$$PATH" PYTHONPATH="$$work/tools"
fi
if command -v ninja >/dev/null; then export CMAKE_GENERATOR=Ninja; fi
unpack
endef

# ggml's CPU library for one instruction set that our kernels know, with the flag of a CPU that this needs:
# kept beside the wheels, by what it is made of. Of what cannot run here it is said that it did not.
#
# * Those of ARM run in an emulator on other CPUs, as the CPU that is named; the last has no dot products,
#   and so none of our kernels.
# * The tile instructions of AMX are plain C++ (tests/native/tiles.h), so that its kernels run wherever the
#   other instructions of theirs do. That is for tests: it is compiled in the least time, not for speed.
define ISA_BUILDS
log=$$PWD/$(VENV)/kernels.log
: > "$$log"
builds=
build() {
    name=$$1
    place="$$built/kernels/$$1-$$({ echo "$$*"; cat tests/native/*; } | cksum | tr ' ' -)"
    shift
    if [ ! -d "$$place" ]; then
        echo "compiling ggml for $$name; log: $$log" >&2
        if [ ! -d "$$work/source" ]; then
            $(CMAKE_AND_SOURCE)
        fi
        cmake -S "$$work/source/vendor/llama.cpp" -B "$$work/$$name" -DCMAKE_BUILD_TYPE=Release \
            -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
            -DLLAMA_BUILD_TOOLS=OFF -DGGML_NATIVE=OFF \
            -DCMAKE_PROJECT_ggml_INCLUDE="$$native/rows.cmake" "$$@" >> "$$log" 2>&1
        cmake --build "$$work/$$name" --target ggml-cpu \
            --parallel "$$(getconf _NPROCESSORS_ONLN)" >> "$$log" 2>&1
        if [ "$$runner" ]; then
            echo "$$runner" > "$$work/$$name/bin/runner"
            "$$cross-g++" -std=c++17 -O1 -I "$$work/source/vendor/llama.cpp/ggml/include" \
                tests/native/compute.cpp -o "$$work/$$name/bin/compute" -L "$$work/$$name/bin" \
                -lggml-cpu -lggml-base -Wl,-rpath,'$$ORIGIN' >> "$$log" 2>&1
        fi
        mkdir -p "$$work/$$name/kept" "$$built/kernels"
        mv "$$work/$$name/bin" "$$work/$$name/kept/"
        mv -T "$$work/$$name/kept" "$$place" 2>> "$$log" || [ -d "$$place/bin" ]
    fi
    builds="$$builds:$$place/bin"
}
has() {
    if grep -qw "$$2" /proc/cpuinfo 2>/dev/null; then return 0; fi
    echo "$$1: not run, this CPU has no $$2" >&2
    return 1
}
try() {
    name=$$1 flag=$$2 runner=
    shift 2
    if has "$$name" "$$flag"; then build "$$name" "$$@"; fi
}
cross=aarch64-linux-gnu
emulate() {
    runner="qemu-aarch64-static -L /usr/$$cross -cpu $$2"
    for tool in "$$cross-g++" qemu-aarch64-static; do
        if ! command -v "$$tool" >/dev/null; then
            echo "$$1: not run, there is no $$tool" \
                "(Debian, Ubuntu: sudo apt install g++-$$cross qemu-user-static)" >&2
            return 0
        fi
    done
    build "$$1" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
        -DCMAKE_C_COMPILER=$$cross-gcc -DCMAKE_CXX_COMPILER=$$cross-g++ -DGGML_CPU_ARM_ARCH="$$3"
}
tiles() {
    if has AMX-emulated avx512bw; then
        try AMX-emulated avx512_vnni -DGGML_AVX512=ON -DGGML_AVX512_VNNI=ON \
            -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="-O1 -DNDEBUG" -DCMAKE_CXX_FLAGS="-O1 -DNDEBUG \
            -D__AMX_TILE__ -D__AMX_INT8__ -include '$(CURDIR)/tests/native/tiles.h'"
    fi
}
isa() {
    case "$$1" in
    AVX2) try AVX2 avx2 ;;
    AVX_VNNI) try AVX_VNNI avx_vnni -DGGML_AVX_VNNI=ON ;;
    AVX512) try AVX512 avx512bw -DGGML_AVX512=ON ;;
    AVX512_VNNI) try AVX512_VNNI avx512_vnni -DGGML_AVX512=ON -DGGML_AVX512_VNNI=ON ;;
    AMX) tiles ;;
    NEON_DOTPROD) try NEON_DOTPROD asimddp -DGGML_CPU_ARM_ARCH=armv8.2-a+dotprod ;;
    NEON_I8MM) try NEON_I8MM i8mm -DGGML_CPU_ARM_ARCH=armv8.6-a+dotprod+i8mm ;;
    *)
        echo "ISA=$$1 is none of AVX2, AVX_VNNI, AVX512, AVX512_VNNI, AMX, NEON_DOTPROD, NEON_I8MM." >&2
        exit 1
        ;;
    esac
}
endef

define ONE_ISA
$(TOOLCHAIN)
$(ISA_BUILDS)
isa "$(ISA)"
if [ "$$builds" ]; then echo "$${builds#:}"; fi
endef

# The laws of products and of attention, and models of every kind, on every instruction set.
define KERNELS
$(TOOLCHAIN)
$(ISA_BUILDS)
if [ "$$(uname -m)" = aarch64 ]; then
    for each in NEON_DOTPROD NEON_I8MM; do isa "$$each"; done
else
    for each in AVX2 AVX_VNNI AVX512 AVX512_VNNI AMX; do isa "$$each"; done
    emulate NEON_DOTPROD cortex-a76 armv8.2-a+dotprod
    emulate NEON_I8MM max armv8.6-a+dotprod+i8mm
    emulate NEON_I8MM-SVE256 max,sve-max-vq=2 armv8.6-a+dotprod+i8mm+sve
    emulate NONE cortex-a53 armv8-a
fi
LOCALSPEC_BUILDS="$$builds" $(BIN)/pytest -rs tests/laws/test_products_law.py \
    tests/laws/test_batches_law.py tests/laws/test_attention_law.py tests/laws/test_kinds_law.py
endef

# llama-server of the llama.cpp that the wheel has, out of the same source distribution and with the
# same flags, so that a comparison measures two programs and not two builds. One static program: it
# loads no library of another version. The web page it could show would be downloaded; it has none.
define LLAMA_SERVER
$(TOOLCHAIN)
if [ ! -x "$$built/llama-server" ]; then
    log=$$PWD/$(VENV)/llama-server.log
    echo "compiling llama-server, two to ten minutes; log: $$log" >&2
    $(CMAKE_AND_SOURCE)
    eval "set -- $$CMAKE_ARGS"
    {
        cmake -S "$$work/source/vendor/llama.cpp" -B "$$work/build" \
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

# The tests of llama.cpp's server, out of the same source distribution: into a cache, never into the
# repository. ARGS are pytest's, such as unit/test_completion.py.
define PEER_TESTS
place="$${XDG_CACHE_HOME:-$$HOME/.cache}/localspec/peer-tests/$(subst ==,-,$(LLAMA))"
if [ ! -f "$$place/tools/server/README.md" ]; then
    mkdir -p "$$(dirname "$$place")"
    work=$$(mktemp -d "$$place.XXXXXX")
    trap 'rm -rf "$$work"' EXIT
    $(BIN)/pip download -q --no-deps --no-binary llama-cpp-python -d "$$work" "$(LLAMA)"
    mkdir "$$work/source"
    tar -xzf "$$work"/llama_cpp_python-*.tar.gz -C "$$work/source" --strip-components 3
    mkdir -p "$$work/kept/tools/server" "$$work/kept/models"
    mv "$$work/source/tools/server/tests" "$$work/kept/tools/server/"
    mv "$$work/source/tools/server/README.md" "$$work/source/tools/server/server-schema.cpp" \
        "$$work/kept/tools/server/"
    mv "$$work/source/models/templates" "$$work/kept/models/"
    rm -rf "$$place"
    mv "$$work/kept" "$$place"
fi
PYTHONPATH=tests $(BIN)/python -m peers "$$place" $(ARGS)
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
