# Entry points; the build itself is CMakeLists.txt. Missing packages are installed first (scripts/install-dependencies).
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_OPTIONS ?=
TEST_OPTIONS ?=
PREFIX ?= /usr/local

.PHONY: all test demo parity mutants clean install dependencies

all: dependencies
	@cmake -G Ninja -S . -B $(BUILD) $(CMAKE_OPTIONS) >$(BUILD).configure.log 2>&1 \
	  || { cat $(BUILD).configure.log; rm -f $(BUILD).configure.log; exit 1; }
	@rm -f $(BUILD).configure.log
	@cmake --build $(BUILD) -j $(JOBS)

dependencies:
	@scripts/install-dependencies

test: all
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS) $(TEST_OPTIONS)

demo: all
	@BUILD=$(BUILD) scripts/demo

# Equality of every layout with one rank, alone.
parity: all
	@cd $(BUILD) && ctest --output-on-failure --no-tests=error -R parity $(TEST_OPTIONS)

# Drops one collective, norm term, mask, bias in turn; each must turn a named test red.
mutants: all
	@scripts/mutants

install: all
	install -D -m 755 $(BUILD)/plait $(DESTDIR)$(PREFIX)/bin/plait

clean:
	rm -rf build build-werror build-asan build-tsan
