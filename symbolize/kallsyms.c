// SPDX-License-Identifier: Apache-2.0
#include "symbolize/kallsyms.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "symbolize/index_sort.h"

#define PAGE_BYTES    4096u
#define NAME_TEXT_MAX 768u /* KSYM_NAME_LEN 512, and a module's name */

struct kernel_symbol {
	uint64_t va;
	const char *name; /* in the text, not terminated */
	const char *module;
	uint16_t name_len;
	uint16_t module_len; /* 0 = the kernel itself */
	char type;
};
VEC_DEFINE(kernel_symbols, struct kernel_symbol);

static void cleanup_kernel_symbols_fn(struct kernel_symbols_vec *symbols)
{
	kernel_symbols_vec_deinit(symbols);
}
#define cleanup_kernel_symbols __attribute__((__cleanup__(cleanup_kernel_symbols_fn)))

static bool parse_address(const char **at, const char *end, uint64_t *ret)
{
	uint64_t value = 0;
	const char *p = *at;

	for (; p < end && isxdigit((unsigned char)*p); p++)
		value = value << 4 | (uint64_t)(isdigit((unsigned char)*p) ? *p - '0'
									   : (*p | 32) - 'a' + 10);
	if (p == *at || p - *at > 16 || p == end || *p != ' ')
		return false;
	*at = p + 1;
	*ret = value;
	return true;
}

static bool parse_line(const char *at, const char *end, struct kernel_symbol *ret)
{
	const char *stop;

	if (!parse_address(&at, end, &ret->va) || end - at < 3 || at[1] != ' ')
		return false;
	ret->type = at[0];
	ret->name = at + 2;
	for (stop = ret->name; stop < end && *stop != '\t' && *stop != ' ';)
		stop++;
	if (stop == ret->name || stop - ret->name > 600)
		return false;
	ret->name_len = (uint16_t)(stop - ret->name);
	ret->module_len = 0;
	while (stop < end && *stop != '[')
		stop++;
	ret->module = stop + 1;
	if (stop < end && end[-1] == ']' && end - ret->module > 1 && end - ret->module < 100)
		ret->module_len = (uint16_t)(end - ret->module - 1);
	return true;
}

static int collect(const char *text, size_t len, struct kernel_symbols_vec *ret)
{
	const char *at = text, *end = text + len;

	while (at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const char *stop = newline ? newline : end;
		struct kernel_symbol symbol;

		if (parse_line(at, stop, &symbol)) {
			int rc = kernel_symbols_vec_push(ret, symbol);

			if (rc < 0)
				return rc;
		}
		if (ret->count > INDEX_SYMBOLS_MAX)
			return -E2BIG;
		at = newline ? newline + 1 : end;
	}
	return 0;
}

static bool is_named(const struct kernel_symbol *symbol, const char *name)
{
	return !symbol->module_len && symbol->name_len == strlen(name) &&
	       !memcmp(symbol->name, name, symbol->name_len);
}

static int find_text(const struct kernel_symbols_vec *symbols, uint64_t *ret_va)
{
	bool found = false, stext_found = false, hidden = true;
	uint64_t va = 0, stext_va = 0;

	for (size_t i = 0; i < symbols->count; i++) {
		hidden = hidden && !symbols->data[i].va;
		if (!found && is_named(&symbols->data[i], "_text")) {
			va = symbols->data[i].va;
			found = true;
		}
		if (!stext_found && is_named(&symbols->data[i], "_stext")) {
			stext_va = symbols->data[i].va;
			stext_found = true;
		}
	}
	if (!found && !stext_found)
		return -ENODATA;
	if (hidden)
		return -EPERM;
	*ret_va = found ? va : stext_va;
	return 0;
}

static bool same_module(const struct kernel_symbol *a, const struct kernel_symbol *b)
{
	return a->module_len == b->module_len && !memcmp(a->module, b->module, a->module_len);
}

/* As perf does: without this the last symbol of a module would name everything up to the next one.
 */
static uint64_t end_of(const struct kernel_symbol *symbol, const struct kernel_symbol *next)
{
	uint64_t end = (symbol->va / PAGE_BYTES + 2) * PAGE_BYTES;

	if (!next)
		return end;
	if (same_module(symbol, next) || next->va < end)
		return next->va;
	return end;
}

static int add(const struct kernel_symbol *symbol, uint64_t end_va, uint64_t text_va,
	       struct index_builder *builder)
{
	char name[NAME_TEXT_MAX];
	size_t len = symbol->name_len;
	uint32_t string, rank;
	int rc;

	memcpy(name, symbol->name, len);
	if (symbol->module_len)
		len += (size_t)snprintf(name + len, sizeof(name) - len, " [%.*s]",
					(int)symbol->module_len, symbol->module);
	rc = index_builder_string(builder, name, len, &string);
	if (rc < 0)
		return rc;
	rank = index_builder_rank(INDEX_RANK_FUNCTION |
					  (tolower(symbol->type) == 'w' ? 0 : INDEX_RANK_STRONG) |
					  (symbol->type == 'T' ? INDEX_RANK_GLOBAL : 0),
				  name, symbol->name_len);
	return index_builder_symbol(builder, symbol->va - text_va, end_va - text_va, string, rank);
}

int kallsyms_parse(const char *text, size_t len, struct index_builder *builder,
		   uint64_t *ret_text_va)
{
	cleanup_kernel_symbols struct kernel_symbols_vec symbols = { 0 };
	cleanup_free struct index_sort_item *order = NULL;
	uint64_t text_va = 0;
	int rc = collect(text, len, &symbols);

	if (rc >= 0)
		rc = find_text(&symbols, &text_va);
	if (rc < 0)
		return rc;
	order = malloc(symbols.count * sizeof(*order));
	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < symbols.count; i++)
		order[i] = (struct index_sort_item){ symbols.data[i].va, (uint32_t)i };
	rc = index_sort(order, symbols.count);
	for (size_t i = 0, next = 0; rc >= 0 && i < symbols.count; i++) {
		const struct kernel_symbol *at = &symbols.data[order[i].index];

		while (next < symbols.count && order[next].key <= at->va)
			next++;
		if (!strchr("tTwW", at->type))
			continue;
		rc = add(at,
			 end_of(at, next < symbols.count ? &symbols.data[order[next].index] : NULL),
			 text_va, builder);
	}
	if (rc < 0)
		return rc;
	builder->origins |= SYMBOL_ORIGIN_KALLSYMS;
	*ret_text_va = text_va;
	return 0;
}
