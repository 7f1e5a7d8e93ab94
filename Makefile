# SPDX-License-Identifier: Apache-2.0
# profd: everything is built into $(O); `make help` lists the targets.

# ---- settings --------------------------------------------------------------------------------
O       ?= build
CC      ?= gcc
CLANG   ?= clang-14
BPFTOOL ?= /usr/sbin/bpftool
V       ?= 0
SAN     ?=
VERSION := 0.1.0

Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' '$(1)' '$(2)';)

WARN := -Wall -Wextra -Wpointer-arith -Wwrite-strings -Wstrict-prototypes -Wmissing-prototypes \
	-Wshadow -Wundef -Wno-unused-parameter $(if $(WERROR),-Werror)
CPPFLAGS += -I. -I$(O)/gen -D_GNU_SOURCE -DPROFD_VERSION='"$(VERSION)"'
CFLAGS   ?= -O2 -g
CFLAGS   += -std=c17 -fno-omit-frame-pointer $(WARN) $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all)
LDFLAGS  += $(if $(SAN),-fsanitize=$(SAN))
LDLIBS   := -lbpf -ldw -lelf -lcjson -lmicrohttpd -lsqlite3 -lzstd -lz -lcurl-gnutls -lgnutls -linih \
	-l:libiberty.a -lpthread -lm

# ---- sources ---------------------------------------------------------------------------------
DIRS     := agent/base agent/wire agent/collect agent/reader agent/profile agent/session agent/store \
	symbolize api api/render
LIB_SRC  := $(foreach d,$(DIRS),$(wildcard $(d)/*.c)) $(filter-out agent/main.c,$(wildcard agent/*.c))
CTL_SRC  := $(wildcard tools/profctl/*.c)
BPF_SRC  := $(wildcard bpf/*.bpf.c)
LIB_OBJ  := $(LIB_SRC:%.c=$(O)/%.o)
CTL_OBJ  := $(CTL_SRC:%.c=$(O)/%.o)
SKELS    := $(BPF_SRC:bpf/%.bpf.c=$(O)/gen/%.skel.h)
LIB      := $(O)/libprofd.a
PROGRAMS := $(if $(wildcard agent/main.c),$(O)/profd) $(if $(CTL_SRC),$(O)/profctl)

.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all help clean check check-root

all: $(LIB) $(PROGRAMS) ## build profd and profctl into build/

help: ## list targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

clean: ## remove build/
	rm -rf $(O)

# ---- rules -----------------------------------------------------------------------------------
$(O)/%.o: %.c | $(SKELS)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(LIB): $(LIB_OBJ)
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $^

$(O)/profd: $(O)/agent/main.o $(LIB)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(O)/profctl: $(CTL_OBJ) $(LIB)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -lcurl-gnutls -lcjson -lpthread -lm

# BPF: CO-RE, types declared in bpf/ itself (design decision 1), so no vmlinux.h is needed to build.
$(O)/bpf/%.bpf.o: bpf/%.bpf.c
	@mkdir -p $(@D)
	$(call say,BPF,$<)$(CLANG) -target bpf -mcpu=v3 -O2 -g -std=gnu17 -Wall -Wextra -Werror \
		-Wno-unused-parameter -D__TARGET_ARCH_x86 -D__bpf__ -I. -MMD -MP -c -o $@ $<

$(O)/gen/%.skel.h: $(O)/bpf/%.bpf.o
	@mkdir -p $(@D)
	$(call say,SKEL,$@)$(BPFTOOL) gen skeleton $< name $(subst -,_,$*)_bpf > $@

# ---- tests -----------------------------------------------------------------------------------
UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(O)/tests/unit/%)
ROOT_SRC := $(wildcard tests/bpf/test_*.c)
ROOT_BIN := $(ROOT_SRC:tests/bpf/%.c=$(O)/tests/bpf/%)

SUPPORT_SRC := $(wildcard tests/support/*.c)
SUPPORT_OBJ := $(SUPPORT_SRC:%.c=$(O)/%.o)

$(O)/tests/unit/%: $(O)/tests/unit/%.o $(SUPPORT_OBJ) $(LIB)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

$(O)/tests/bpf/%: $(O)/tests/bpf/%.o $(SUPPORT_OBJ) $(LIB)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

check: $(UNIT_BIN) ## unit tests, no root needed
	@set -e; for t in $(UNIT_BIN); do timeout 120 $$t || exit 1; done

check-root: $(ROOT_BIN) $(PROGRAMS) ## tests that need the kernel
	@set -e; for t in $(ROOT_BIN); do timeout 300 $$t || exit 1; done

-include $(LIB_OBJ:.o=.d) $(CTL_OBJ:.o=.d) $(O)/agent/main.d $(UNIT_BIN:=.d) $(ROOT_BIN:=.d) $(BPF_SRC:%.c=$(O)/%.d)
