# Two commands: `make demo` draws pictures, `make test` runs every test. Both install and build what is missing.
PRESET ?= release
BUILD  := build/$(PRESET)
JOBS   ?= $(shell nproc)
DEMO   := demo

.PHONY: help setup build demo test test-vulkan bench install clean lint
help:
	@echo "make demo     set up, build, draw pictures into demo/"
	@echo "make test     set up, build, run all tests (PRESET=asan for sanitizers)"
	@echo "make build    set up and build build/$(PRESET)/bin/danqing (BACKENDS='vulkan;hip;cuda' for cards)"
	@echo "make test-vulkan  ggml's Vulkan backend and its tests on Mesa's software driver"
	@echo "make bench    benchmarks on the mini model"
	@echo "make install  install (PREFIX=/usr/local)"
	@echo "make lint     clang-format and clang-tidy"

setup:
	@tools/setup.sh

build: setup
	@if [ -n "$(TESTS)" ]; then cmake --preset $(PRESET) -DDANQING_BUILD_TESTS=ON; \
	elif [ -n "$(BACKENDS)" ]; then cmake --preset $(PRESET) -DDANQING_BUILD_TESTS=OFF "-DDANQING_BACKENDS=$(BACKENDS)"; \
	elif [ ! -f $(BUILD)/build.ninja ]; then cmake --preset $(PRESET) -DDANQING_BUILD_TESTS=OFF; fi
	@cmake --build $(BUILD) -j $(JOBS)

demo: build
	@tools/demo.sh $(BUILD)/bin/danqing $(DEMO)

test:
	@tools/setup_tests.sh
	@$(MAKE) --no-print-directory build TESTS=1
	@# Tests run side by side; a tiny model on one thread each is the fastest way through them.
	@DANQING_THREADS=1 ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

test-vulkan: setup
	@tools/setup_vulkan.sh
	@tools/setup_tests.sh
	@cmake --preset $(PRESET) -DDANQING_BUILD_TESTS=ON
	@cmake --build $(BUILD) -j $(JOBS) --target danqing_cli test_models
	@ctest --test-dir $(BUILD) --output-on-failure -L vulkan

bench: build
	$(BUILD)/bin/danqing bench

PREFIX ?= /usr/local
install: build
	cmake --install $(BUILD) --prefix $(PREFIX)

lint: setup
	@tools/lint.sh

clean:
	rm -rf build demo
