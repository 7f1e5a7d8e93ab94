# SPDX-License-Identifier: Apache-2.0
# profd: everything is built into $(O); `make help` lists the targets and the variables.

# ---- settings --------------------------------------------------------------------------------
# ARCH=arm64: cross-built, with Debian's libraries of that architecture in a folder of their own (tools/sysroot).
ARCH    ?= $(patsubst aarch64,arm64,$(patsubst x86_64,amd64,$(shell uname -m)))
MACHINE := $(patsubst arm64,aarch64,$(patsubst amd64,x86_64,$(ARCH)))
CROSS   := $(if $(filter $(MACHINE),$(shell uname -m)),,1)
O       ?= build$(if $(CROSS),/$(ARCH))
# One name for the folder, however it was given: what an object depends on is noted below that name.
override O := $(patsubst $(CURDIR)/%,%,$(abspath $(O)))
ifneq ($(CROSS),)
SYSROOT ?= build/sysroot-$(ARCH)
CC      := $(MACHINE)-linux-gnu-gcc --sysroot=$(abspath $(SYSROOT))
AR      := $(MACHINE)-linux-gnu-ar
RUN     ?= qemu-$(MACHINE)-static -L $(abspath $(SYSROOT))
LIBRARIES := $(SYSROOT)/complete
endif
CC      ?= gcc
CLANG   ?= clang-14
BPFTOOL ?= /usr/sbin/bpftool
prefix  ?= /usr
DESTDIR ?=
V       ?= 0
SAN     ?=
WERROR  ?=
T       ?=
S       ?= 10
UI      ?=
VERSION := 0.1.0

BPF_ARCH := $(if $(filter arm64,$(ARCH)),arm64,x86)

# quiet: a line per file; V=1 shows the commands
Q   := $(if $(filter 1,$(V)),,@)
say  = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' '$(1)' '$(2)';)

WARN := -Wall -Wextra -Wpointer-arith -Wwrite-strings -Wstrict-prototypes -Wmissing-prototypes \
	-Wshadow -Wundef -Wno-unused-parameter $(if $(WERROR),-Werror)
HARDEN := $(if $(SAN),,-D_FORTIFY_SOURCE=2 -fstack-protector-strong -fPIE)
CPPFLAGS += -I. -I$(O)/gen -D_GNU_SOURCE -DPROFD_VERSION='"$(VERSION)"'
CFLAGS   ?= -O2 -g
override CFLAGS  += -std=c17 -fno-omit-frame-pointer $(WARN) $(HARDEN) \
	$(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all)
override LDFLAGS += $(if $(SAN),-fsanitize=$(SAN),-pie -Wl,-z,relro,-z,now)
LDLIBS   := -lbpf -ldw -lelf -lcjson -lmicrohttpd -lpcre2-8 -lsqlite3 -lzstd -lz -lcurl-gnutls -lgnutls \
	-l:libiberty.a -lpthread -lm

# ---- sources ---------------------------------------------------------------------------------
LIB_SRC  := $(filter-out agent/main.c,$(wildcard $(addsuffix /*.c,agent agent/* agent/*/* symbolize api api/*)))
CTL_SRC  := $(wildcard tools/profctl/*.c)
BPF_SRC  := $(wildcard bpf/*.bpf.c)
LIB_OBJ  := $(LIB_SRC:%.c=$(O)/%.o)
CTL_OBJ  := $(CTL_SRC:%.c=$(O)/%.o)
SKELS    := $(BPF_SRC:bpf/%.bpf.c=$(O)/gen/%.skel.h)
LIB      := $(O)/libprofd.a
PROGRAMS := $(if $(wildcard agent/main.c),$(O)/profd) $(if $(CTL_SRC),$(O)/profctl)

.DELETE_ON_ERROR:
.SUFFIXES:
# Holds for all files as long as no line names some: make would delete what it takes for intermediate, and build it again.
.SECONDARY:
.PHONY: all container help clean tests check check-arch check-root check-asan check-long fuzz fuzz-replay fuzz-coverage bench bench-programs insns lint format \
	coverage install deb

all: $(LIB) $(PROGRAMS) ## build profd and profctl into build/

help: ## list targets and variables
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "variables: O=build V=1 WERROR=1 UI=plain SAN=address,undefined prefix=/usr DESTDIR= T=target S=seconds"

clean: ## remove build/
	rm -rf $(O)

# ---- rules -----------------------------------------------------------------------------------
$(SYSROOT)/complete: tools/sysroot tools/packages.sh
	$(call say,ROOT,$(SYSROOT))tools/sysroot $(ARCH) $(SYSROOT)

$(O)/%.o: %.c | $(SKELS) $(LIBRARIES)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

UI_SRC := $(wildcard api/ui/* api/ui/.npmrc api/ui/*/*)

$(O)/api/http/assets.o $(O)/fuzz/api/http/assets.o $(O)/cover/api/http/assets.o: $(O)/gen/openapi.json $(UI_SRC) $(O)/gen/ui_files.h
$(O)/api/http/assets.o $(O)/fuzz/api/http/assets.o $(O)/cover/api/http/assets.o: CPPFLAGS += -DUI_DIR='"$(O)/ui"' -DGEN_DIR='"$(O)/gen"'

# Debian's interpreter: it has Debian's YAML module.
$(O)/gen/openapi.json: api/openapi.yaml
	@mkdir -p $(@D)
	$(call say,JSON,$@)/usr/bin/python3 -c 'import json, sys, yaml; \
		json.dump(yaml.safe_load(sys.stdin), sys.stdout, separators=(",", ":"))' < $< > $@

$(O)/gen/ui_files.h: tools/build_ui $(UI_SRC)
	$(call say,UI,$@)UI=$(UI) tools/build_ui $(O)

$(LIB): $(LIB_OBJ)
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $^

# From the objects, not the archive, so that two functions of one name are an error.
$(O)/profd: $(O)/agent/main.o $(LIB_OBJ)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(O)/profctl: $(CTL_OBJ) $(LIB)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -lcurl-gnutls -lcjson -lpthread -lm

# CO-RE; the kernel types used are declared in bpf/ (design decision 1), so no vmlinux.h is needed.
$(O)/bpf/%.bpf.o: bpf/%.bpf.c
	@mkdir -p $(@D)
	$(call say,BPF,$<)$(CLANG) -target bpf -mcpu=v3 -O2 -g -std=gnu17 -Wall -Wextra -Werror \
		-Wno-unused-parameter -D__TARGET_ARCH_$(BPF_ARCH) -D__bpf__ -I. -ffile-prefix-map=$(CURDIR)=. -MMD -MP -c -o $@ $<

$(O)/gen/%.skel.h: $(O)/bpf/%.bpf.o
	@mkdir -p $(@D)
	$(call say,SKEL,$@)$(BPFTOOL) gen skeleton $< name $(subst -,_,$*)_bpf > $@

# ---- tests -----------------------------------------------------------------------------------
UNIT_BIN := $(patsubst tests/unit/%.c,$(O)/tests/unit/%,$(wildcard tests/unit/test_*.c))
ROOT_BIN := $(patsubst tests/bpf/%.c,$(O)/tests/bpf/%,$(wildcard tests/bpf/test_*.c))
SUPPORT_OBJ := $(patsubst %.c,$(O)/%.o,$(wildcard tests/support/*.c))

# More than a hundred programs: mold links them in a fraction of the time.
TEST_LINKER := $(if $(CROSS),,$(if $(shell command -v mold),-fuse-ld=mold))

$(O)/tests/%: $(O)/tests/%.o $(SUPPORT_OBJ) $(LIB)
	$(call say,LD,$@)$(CC) $(LDFLAGS) $(TEST_LINKER) -o $@ $^ -lcmocka $(LDLIBS)

# Programs that fail the n-th allocation (tests/support/alloc_fail.h).
$(O)/tests/unit/%_nomem: LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc

# Programs that fail the n-th call that reads or writes.
$(O)/tests/unit/%_faults: LDFLAGS += -Wl,--wrap=pread,--wrap=pwrite,--wrap=fdatasync,--wrap=fsync,--wrap=ftruncate,--wrap=openat

tests: $(UNIT_BIN) $(ROOT_BIN) $(O)/tests/vm/fake_kernel ## build the test programs

check: $(UNIT_BIN) ## unit tests, no root needed
	@set -e; for t in $(UNIT_BIN); do timeout 180 $(RUN) $$t || exit 1; done

# Tests that depend on the architecture and need no kernel of its own.
ARCH_TESTS := unwind_self unwind_self_nofp unwind_self_signed unwind_step cfi_rows late_stacks reader_parts kallsyms stack_table \
	python_walk script_frames

# test_unwind_self walks its own stacks. Its code is also compiled without frame pointers, and with signed return addresses
# (x86-64: with marks where indirect calls land).
UNWIND_BUILDS := $(O)/tests/unit/test_unwind_self_nofp.o $(O)/tests/unit/test_unwind_self_signed.o
$(O)/tests/unit/test_unwind_self_nofp.o: UNWIND_FLAGS := -fomit-frame-pointer
$(O)/tests/unit/test_unwind_self_signed.o: UNWIND_FLAGS := $(if $(filter arm64,$(ARCH)),-mbranch-protection=standard,-fcf-protection)
$(UNWIND_BUILDS): tests/unit/test_unwind_self.c | $(SKELS) $(LIBRARIES)
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(CPPFLAGS) $(CFLAGS) $(UNWIND_FLAGS) -MMD -MP -c -o $@ $<

check-arch: all $(ARCH_TESTS:%=$(O)/tests/unit/test_%) ## make ARCH=arm64 check-arch: builds all for it, runs what depends on it, emulated
	@tools/bpf_stacks $(O)
	@set -e; for t in $(ARCH_TESTS:%=$(O)/tests/unit/test_%); do timeout 180 $(RUN) $$t || exit 1; done

check-root: $(ROOT_BIN) $(PROGRAMS) ## tests that need the kernel (as root)
	@set -e; for t in $(ROOT_BIN); do timeout 300 $$t || exit 1; done

check-asan: ## unit tests under address and undefined behaviour sanitizers
	ASAN_OPTIONS=handle_segv=2:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
		$(MAKE) O=$(O)-asan SAN=address,undefined CFLAGS='-O1 -g' check

# A fuzz target includes nothing but its parser; the library is compiled again with coverage.
# Zero may be added to a null pointer (C2y, N3322), which clang takes for a pointer that leaves its object; those that do
# the address sanitizer sees.
FUZZERS  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_CC   = clang-14 $(CPPFLAGS) -O1 -gline-tables-only -std=gnu17 -Wno-gnu -Werror -fno-sanitize-recover=all
FUZZ_SAN  = address,undefined -fno-sanitize=pointer-overflow
FUZZ_OBJ := $(LIB_SRC:%.c=$(O)/fuzz/%.o)

$(O)/fuzz/%.o: %.c | $(SKELS)
	@mkdir -p $(@D)
	$(call say,FUZZ-CC,$<)$(FUZZ_CC) -fsanitize=fuzzer-no-link,$(FUZZ_SAN) -MMD -MP -c -o $@ $<

$(O)/fuzz/libprofd.a: $(FUZZ_OBJ)
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $^

$(O)/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(O)/fuzz/libprofd.a
	$(call say,FUZZ-LD,$@)$(FUZZ_CC) $(TEST_LINKER) -fsanitize=fuzzer,$(FUZZ_SAN) -o $@ $^ $(LDLIBS)

# $(call fuzz_run,OPTIONS): one target over its corpus; what it found new stays in build/.
fuzz_run = tests/fuzz/seeds $* $(O)/fuzz/corpus/$* && \
	if $(O)/fuzz/$* $(1) -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 $(O)/fuzz/corpus/$* >$(O)/fuzz/$*.log 2>&1; \
	then echo "ok $*: $$(sed -n 's/.*number_of_executed_units: *//p' $(O)/fuzz/$*.log) inputs"; \
	else echo "not ok $*: see $(O)/fuzz/$*.log"; tail -n 20 $(O)/fuzz/$*.log; exit 1; fi

fuzz: $(addprefix fuzz-time-,$(or $(T),$(FUZZERS))) ## fuzz all targets for 10 s each, or one: make fuzz T=fuzz_cfi_rows S=300

fuzz-time-%: $(O)/fuzz/%
	@$(call fuzz_run,-max_total_time=$(S))

check-long: ## 1,000 kills, all allocators, Go programs of all versions, packages, the README's first minute on a bare host, an hour of everything (as root)
	tests/long/run

fuzz-replay: $(FUZZERS:%=fuzz-replay-%) ## every fuzz target over its corpus and 2,000 fresh inputs

# The same once more to count the lines of each parser that the fuzz targets reach (tests/README.md lists them).
COVER_OBJ := $(LIB_SRC:%.c=$(O)/cover/%.o)
COVER_CC   = $(FUZZ_CC) -fprofile-instr-generate -fcoverage-mapping

$(O)/cover/%.o: %.c | $(SKELS)
	@mkdir -p $(@D)
	$(call say,COVER-CC,$<)$(COVER_CC) -fsanitize=fuzzer-no-link -MMD -MP -c -o $@ $<

$(O)/cover/libprofd.a: $(COVER_OBJ)
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $^

$(O)/cover/fuzz_%: tests/fuzz/fuzz_%.c $(O)/cover/libprofd.a
	$(call say,COVER-LD,$@)$(COVER_CC) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)

fuzz-coverage: $(FUZZERS:%=$(O)/cover/%) ## lines of each parser that its fuzz target reaches, of which 80 % must be
	tests/fuzz/coverage $(O)

fuzz-replay-%: $(O)/fuzz/%
	@$(call fuzz_run,-runs=2000 -seed=1)

$(O)/tools/bench/%: $(O)/tools/bench/%.o $(LIB)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

bench-programs: all $(O)/tools/bench/names $(O)/tools/bench/compare $(O)/tools/bench/days $(O)/tools/bench/render $(O)/tools/bench/series $(O)/tests/unit/test_share_changes

bench: ## overhead and throughput, as ratios against perf in the same run (as root)
	tools/bench/run

insns: $(SKELS) ## BPF programs: instructions against the budget in bpf/PROGRAMS.md, stack bytes against the kernel's limit
	@tools/insn_report $(O)
	@tools/bpf_stacks $(O)

coverage: ## line and branch coverage of the unit tests, per folder
	$(MAKE) O=$(O)-coverage CFLAGS='-O0 -g --coverage' LDFLAGS=--coverage check
	gcovr --root . --object-directory $(O)-coverage --exclude tests/ --print-summary

# ---- tools -----------------------------------------------------------------------------------
C_FILES = $(shell git ls-files '*.c' '*.h')

format: ## rewrite C files by .clang-format: make format F='FILE...'
	clang-format-14 -i $(F)

lint: insns ## include directions, sizes, headers alone, SPDX, formatting, static analysis, shell scripts, BPF budgets
	@git rev-parse --is-inside-work-tree >/dev/null || { echo "lint looks at what is committed: run it in a clone"; exit 1; }
	tools/check_tree
	tools/check_format
	tools/check_headers $(O)
	$(call say,CPPCHECK,)cppcheck --quiet --error-exitcode=1 --std=c11 --inline-suppr -j2 -I. \
		--enable=warning,portability --suppress=missingIncludeSystem --suppress=preprocessorErrorDirective \
		--suppress=nullPointerOutOfMemory --suppress=memleak --suppress=shiftTooManyBitsSigned \
		-D__x86_64__ '-DLIBBPF_OPTS(type,name,...)=struct type name' \
		'-DcJSON_ArrayForEach(e,a)=while ((e = cJSON_next(a)))'  $(filter-out %.bpf.c,$(filter %.c,$(C_FILES)))
	shellcheck -x tools/quickstart tools/test tools/build_ui tools/check_tree tools/check_format tools/check_headers .ci/run \
		tools/packaging/deb tools/packaging/profd-generator tests/vm/run tools/bench/run tests/long/run tests/long/kills tests/long/package tests/long/python tests/long/java tests/long/bare tests/long/kernels tests/long/in-root \
		tests/long/in-machine
	@echo "ok lint"

GENERATED := $(O)/profd.conf.5 $(O)/profctl.1 $(O)/profctl.bash $(O)/profctl.zsh $(O)/profctl.fish

$(O)/profctl.%: $(O)/profctl
	$(call say,GEN,$@)$(RUN) $(O)/profctl --generate $(if $(filter 1,$*),man,$*) > $@

$(O)/profd.conf.5: tools/packaging/conf_man tools/packaging/profd.conf
	$(call say,GEN,$@)tools/packaging/conf_man tools/packaging/profd.conf > $@

install: all $(GENERATED) ## install below $(DESTDIR)$(prefix), with the systemd unit
	install -D -m 755 $(O)/profd $(DESTDIR)$(prefix)/sbin/profd
	install -D -m 755 $(O)/profctl $(DESTDIR)$(prefix)/bin/profctl
	install -D -m 644 tools/packaging/profd.8 $(DESTDIR)$(prefix)/share/man/man8/profd.8
	install -D -m 644 $(O)/profd.conf.5 $(DESTDIR)$(prefix)/share/man/man5/profd.conf.5
	install -D -m 644 $(O)/profctl.1 $(DESTDIR)$(prefix)/share/man/man1/profctl.1
	install -D -m 644 $(O)/profctl.bash $(DESTDIR)$(prefix)/share/bash-completion/completions/profctl
	install -D -m 644 $(O)/profctl.zsh $(DESTDIR)$(prefix)/share/zsh/vendor-completions/_profctl
	install -D -m 644 $(O)/profctl.fish $(DESTDIR)$(prefix)/share/fish/vendor_completions.d/profctl.fish
	install -D -m 644 tools/packaging/debian/profd.service $(DESTDIR)/lib/systemd/system/profd.service
	install -D -m 755 tools/packaging/profd-generator $(DESTDIR)/lib/systemd/system-generators/profd-generator
	install -D -m 644 tools/packaging/debian/profd.sysusers $(DESTDIR)/usr/lib/sysusers.d/profd.conf
	install -D -m 644 tools/packaging/debian/profd.tmpfiles $(DESTDIR)/usr/lib/tmpfiles.d/profd.conf
	install -D -m 644 tools/packaging/debian/profd.sysctl $(DESTDIR)/usr/lib/sysctl.d/50-profd.conf
	install -D -m 644 tools/packaging/profd.conf $(DESTDIR)/etc/profd/profd.conf
	install -D -m 644 tools/packaging/prometheus/profd-alerts.yml $(DESTDIR)$(prefix)/share/profd/profd-alerts.yml
	install -D -m 644 tools/packaging/grafana/profd.json $(DESTDIR)$(prefix)/share/profd/profd-dashboard.json
	install -D -m 644 tools/packaging/grafana/profd-datasource.yaml $(DESTDIR)$(prefix)/share/profd/profd-datasource.yaml

container: all ## root and Dockerfile of the container image into build/container
	tools/packaging/container/rootfs $(O)

deb: $(LIBRARIES) ## Debian packages of the committed tree into build/deb; ARCH=arm64: cross-built, into build/arm64/deb
	tools/packaging/deb $(O) $(if $(CROSS),$(ARCH) $(SYSROOT))

-include $(shell find $(addprefix $(O)/,agent api bpf fuzz symbolize tests tools) -type f -name '*.d' 2>/dev/null)
