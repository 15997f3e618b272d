# Entry points; the build itself is CMakeLists.txt. Missing packages are installed first (scripts/install-dependencies).
# `make help` prints the text after ## of each target, and the lines below that begin with ##.
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_OPTIONS ?=
TEST_OPTIONS ?=
BENCH_OPTIONS ?=
PREFIX ?= /usr/local
DESTDIR ?=
RUNS ?= 1000000
##
## Settings, as in `make test JOBS=4 TEST_OPTIONS='-R resume'`:
##   BUILD=build            the folder to build in
##   JOBS=N                 how many jobs at once (all cores)
##   CMAKE_OPTIONS=         further options for cmake, as -DPLAIT_MPI=OFF
##   TEST_OPTIONS=          further options for ctest, as -R NAME
##   BENCH_OPTIONS=         --quick: a short run
##   PREFIX=/usr/local      where make install puts things; DESTDIR goes before it
##   ROOM=NAME              of src: make check runs a sample of everything, and all of this room
##   RUNS=1000000           inputs for each fuzz target
##   PARITY_ONLY=TEXT       only layouts with this text in their names (make parity)
##   PARITY_SEED=N          which samples make parity takes (the date)
## A first run of your own: README.md. All commands: build/plait --help.

.PHONY: all help examples tests test check nightly demo parity mutants kills elastic slurm fuzz bench install wheel clean configure dependencies

all: configure       ## builds the command, build/plait: this is `make` alone
	@cmake --build $(BUILD) -j $(JOBS) --target plait

help:                ## lists targets and settings
	@awk '/^[a-z]+:.*## / { name = $$1; sub(/:.*/, "", name); sub(/.*## /, ""); printf "make %-10s %s\n", name, $$0 } \
	  /^##( |$$)/ { text = text substr($$0, 4) "\n" } END { printf "%s", text }' $(firstword $(MAKEFILE_LIST))

examples: configure  ## builds the programs of examples/ into build/examples
	@cmake --build $(BUILD) -j $(JOBS) --target examples

tests: configure     ## builds everything: the command, libraries, examples, tests, fuzz targets
	@cmake --build $(BUILD) -j $(JOBS)

# A sample of everything: it proves that this build works here. Needs no network, no root, and no package that the build does not.
test: configure      ## tests this build: a sample of everything (a few minutes)
	@cmake --build $(BUILD) -j $(JOBS) --target tier1
	@cd $(BUILD) && ctest --no-label-summary --output-on-failure --no-tests=error -j $(JOBS) -L '^tier1$$' $(TEST_OPTIONS)

check: tests         ## tests all that a change can break (ten minutes; less with ROOM=data)
	@cd $(BUILD) && ctest --no-label-summary --output-on-failure --no-tests=error -j $(JOBS) $(tiers) $(TEST_OPTIONS)

# What they are is in cmake/tests.cmake. With a room: tier 1, and that room's of tier 2.
tiers = $(if $(ROOM),$(if $(wildcard src/$(ROOM)/.),,$(error src/ has no room "$(ROOM)"; these are $(patsubst src/%/,%,$(wildcard src/*/)))))$(if $(ROOM),-L '^(tier1|room:$(ROOM))$$' -LE '^tier3$$',-L '^tier[12]$$' -LE '^sampled$$')

nightly:             ## runs the long tests, LEG by leg (make nightly LEG=faults; none: lists them)
	@scripts/nightly $(or $(LEG),--list)

demo: all            ## trains a small GPT on C headers of this machine (about two minutes)
	@BUILD=$(BUILD) scripts/demo

# Equality of every layout with one rank: the whole matrix, which writes docs/parity.md (and says there how long it takes), then the
# other tests of it.
parity: export PARITY_SEED := $(or $(PARITY_SEED),$(shell echo $$(($$(date +%s) / 86400))))
parity: tests        ## compares every parallel configuration with one rank; writes docs/parity.md
	@JOBS=$(JOBS) scripts/parity $(BUILD)
	@cd $(BUILD) && ctest --no-label-summary --output-on-failure --no-tests=error -j $(JOBS) -R parity $(TEST_OPTIONS)

# Builds in build-faults.
mutants: dependencies ## switches on each fault of src/base/faults.def: its test must fail
	@JOBS=$(JOBS) CMAKE_OPTIONS='$(CMAKE_OPTIONS)' scripts/mutants

kills: all           ## kills a run 50 times while it writes checkpoints: it resumes from the last whole one
	@PLAIT=$(abspath $(BUILD))/plait SOURCE=$(CURDIR) ASYNC_KILLS=50 bash tests/train/test_async.sh

elastic: all         ## random faults while a run trains on three machines; FAULTS=100 SEED=N
	@PLAIT=$(abspath $(BUILD))/plait SOURCE=$(CURDIR) FAULTS=$(or $(FAULTS),100) $(if $(SEED),SEED=$(SEED)) bash tests/elastic/test_elastic.sh

slurm: all           ## runs jobs under a real Slurm on this machine (as root; about five minutes)
	@scripts/install-dependencies slurm
	@PLAIT=$(abspath $(BUILD))/plait SOURCE=$(CURDIR) bash tests/slurm/slurm_jobs.sh
	@PLAIT=$(abspath $(BUILD))/plait SOURCE=$(CURDIR) bash tests/slurm/slurm_machines.sh

# Under clang's libFuzzer, ASan and UBSan; without clang, inputs are mutated blindly by tests/fuzz/driver.c. Builds in build-fuzz.
fuzz: dependencies   ## gives random inputs to every parser, under sanitizers
	@scripts/install-dependencies fuzz || true
	@if echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return 0; }' | \
	    clang -fsanitize=fuzzer -x c - -o /dev/null 2>/dev/null; then options="-DCMAKE_C_COMPILER=clang -DPLAIT_FUZZ=ON"; \
	  else echo "no clang with libFuzzer here: inputs are mutated blindly"; options=; fi; \
	  cmake -G Ninja -S . -B build-fuzz -DPLAIT_SANITIZE=address,undefined $$options >build-fuzz.log \
	  || { cat build-fuzz.log; exit 1; }; rm -f build-fuzz.log
	@cmake --build build-fuzz -j $(JOBS) --target $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
	@JOBS=$(JOBS) scripts/fuzz build-fuzz $(RUNS)

# Wants an idle machine.
bench: configure     ## measures speed and memory, beside PyTorch where it is installed
	@cmake --build $(BUILD) -j $(JOBS) --target plait bench_gemm bench_compile bench_requests
	@BUILD=$(BUILD) bench/run $(BENCH_OPTIONS)

# Tests are not needed for it. docs/library.md says what lies where.
install: configure   ## installs command, libraries, headers, plait.pc, models, recipes, examples
	@cmake --build $(BUILD) -j $(JOBS) --target installed
	@DESTDIR='$(DESTDIR)' cmake --install $(BUILD) --prefix '$(PREFIX)'

# For any machine whose C library is at least 2.34. Builds in build-wheel; the wheel lies in build-wheel/dist. docs/python.md.
wheel: dependencies  ## builds a wheel for pip: the command, the Python module, all that both need
	@scripts/install-dependencies wheel
	@cmake -G Ninja -S . -B build-wheel -DPLAIT_MPI=OFF -DPLAIT_UCX=ON -DPLAIT_GNUTLS=ON -DPLAIT_CURL=ON -DPLAIT_TESTS=OFF \
	  $(CMAKE_OPTIONS) >build-wheel.configure.log 2>&1 || { cat build-wheel.configure.log; exit 1; }; rm -f build-wheel.configure.log
	@cmake --build build-wheel -j $(JOBS) --target plait plait_shared
	@python3 python/make-wheel build-wheel

clean:               ## removes all that was built
	rm -rf build build-werror build-asan build-tsan build-fuzz build-minimal build-faults build-arm64 build-wheel

configure: dependencies
	@cmake -G Ninja -S . -B $(BUILD) $(CMAKE_OPTIONS) >$(BUILD).configure.log 2>&1 \
	  || { cat $(BUILD).configure.log; rm -f $(BUILD).configure.log; exit 1; }
	@rm -f $(BUILD).configure.log

dependencies:
	@scripts/install-dependencies
