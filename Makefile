# Entry points; the build itself is CMakeLists.txt. Missing packages are installed first (scripts/install-dependencies).
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_OPTIONS ?=
TEST_OPTIONS ?=
PREFIX ?= /usr/local
RUNS ?= 1000000

.PHONY: all configure test demo parity mutants fuzz bench clean install dependencies

all: configure
	@cmake --build $(BUILD) -j $(JOBS)

configure: dependencies
	@cmake -G Ninja -S . -B $(BUILD) $(CMAKE_OPTIONS) >$(BUILD).configure.log 2>&1 \
	  || { cat $(BUILD).configure.log; rm -f $(BUILD).configure.log; exit 1; }
	@rm -f $(BUILD).configure.log

dependencies:
	@scripts/install-dependencies

test: all
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS) $(TEST_OPTIONS)

demo: configure
	@cmake --build $(BUILD) -j $(JOBS) --target plait
	@BUILD=$(BUILD) scripts/demo

# Equality of every layout with one rank: the whole matrix, which writes docs/parity.md (and says there how long it takes), then the
# other tests of it. PARITY_ONLY=TEXT: the layouts that have the text in their names. PARITY_SEED chooses the samples; the date, unless given.
parity: export PARITY_SEED := $(or $(PARITY_SEED),$(shell echo $$(($$(date +%s) / 86400))))
parity: all
	@JOBS=$(JOBS) scripts/parity $(BUILD)
	@cd $(BUILD) && ctest --output-on-failure --no-tests=error -j $(JOBS) -R parity $(TEST_OPTIONS)

# Switches on the faults of src/base/faults.def in turn; each must turn its test red. Builds in build-faults.
mutants: dependencies
	@JOBS=$(JOBS) CMAKE_OPTIONS='$(CMAKE_OPTIONS)' scripts/mutants

# RUNS inputs for each parser, under clang's libFuzzer, ASan and UBSan; without clang, mutated blindly by tests/fuzz/driver.c.
fuzz: dependencies
	@scripts/install-dependencies fuzz || true
	@if echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return 0; }' | \
	    clang -fsanitize=fuzzer -x c - -o /dev/null 2>/dev/null; then options="-DCMAKE_C_COMPILER=clang -DPLAIT_FUZZ=ON"; \
	  else echo "no clang with libFuzzer here: inputs are mutated blindly"; options=; fi; \
	  cmake -G Ninja -S . -B build-fuzz -DPLAIT_SANITIZE=address,undefined $$options >build-fuzz.log \
	  || { cat build-fuzz.log; exit 1; }; rm -f build-fuzz.log
	@cmake --build build-fuzz -j $(JOBS) --target $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
	@JOBS=$(JOBS) scripts/fuzz build-fuzz $(RUNS)

# Speed and memory, beside PyTorch's where it is installed; BENCH_OPTIONS=--quick for a short run. Wants an idle machine.
bench: configure
	@cmake --build $(BUILD) -j $(JOBS) --target plait bench_gemm bench_compile
	@BUILD=$(BUILD) bench/run $(BENCH_OPTIONS)

# The command, libplait (static and shared), include/plait and plait.pc, below $(DESTDIR)$(PREFIX).
install: all
	@DESTDIR='$(DESTDIR)' cmake --install $(BUILD) --prefix '$(PREFIX)'

clean:
	rm -rf build build-werror build-asan build-tsan build-fuzz build-minimal build-faults
