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
	@echo '  LOCALSPEC_ISA=NAME      with the kernels of another instruction set that this CPU has: AVX2, AVX512 ...'
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
	@.venv-remote/bin/python -c 'from localspec.engine.llama import rpc; rpc.require()'
	@.venv-remote/bin/pytest -rs tests/worker/test_remotes.py tests/worker/test_rpc_host.py \
		tests/daemon/test_remote.py tests/daemon/test_llama_server.py tests/laws/test_experts_law.py

kernels: $(VENV)/.checks
	@builds=$$($(BIN)/python tests/native/isa.py all) && LOCALSPEC_BUILDS="$$builds" $(BIN)/pytest -rs \
		tests/laws/test_products_law.py tests/laws/test_packing_law.py tests/laws/test_many_rows_law.py \
		tests/laws/test_batches_law.py tests/laws/test_attention_law.py tests/laws/test_kinds_law.py

# Where ggml's CPU library for one instruction set is, which may be less than this CPU has; the tests ask.
isa:
	@$(BIN)/python tests/native/isa.py "$(ISA)"

llama-server: $(BIN)/python
	@$(BIN)/python -m localspec.build llama-server --into $(VENV) --backend $(BACKEND) $(if $(REMOTE),--remote)

bench-gpu:
	@if [ $(DEVICE) = gpu ]; then sh -eu -c "$$NEED_CUDA"; fi
	@$(MAKE) --no-print-directory VENV=.venv-$(DEVICE) .venv-$(DEVICE)/.installed
	@.venv-$(DEVICE)/bin/localspec models pull
	@.venv-$(DEVICE)/bin/python -m localspec.bench.gpu --device $(DEVICE) $(ARGS)

clean:
	rm -rf .venv .venv-gpu .venv-cpu .venv-remote .mypy_cache .pytest_cache .ruff_cache .hypothesis

# --- installation: each step leaves a file in VENV that make can date ----------------------------

export FIND_PYTHON PEER_TESTS NEED_CUDA

$(BIN)/python:
	@sh -eu -c "$$FIND_PYTHON"

$(VENV)/.installed: pyproject.toml $(wildcard localspec/engine/native/*) $(BIN)/python
	@$(BIN)/python -m pip install -q 'pip>=25.1'
	@$(BIN)/python -m localspec.build install --into $(VENV) --backend $(BACKEND) $(if $(REMOTE),--remote)
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
