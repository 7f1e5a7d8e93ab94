// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/collect/modules/module_files.h"
#include "agent/collect/modules/module_table.h"

static struct module *file(struct module_table *table, uint64_t inode, uint64_t generation)
{
	struct module_file id = { .inode = inode, .generation = generation, .dev_major = 8,
				  .dev_minor = 1 };

	return module_table_file(table, &id, "/lib/x.so");
}

static void a_file_is_known_by_its_identity(void **state)
{
	cleanup(module_table) struct module_table *table = module_table_create();
	struct module_file elsewhere = { .inode = 7, .dev_major = 8, .dev_minor = 2 };
	struct module *first = file(table, 7, 0);

	assert_int_equal(first->id, 1);
	assert_ptr_equal(file(table, 7, 0), first);
	assert_ptr_not_equal(file(table, 8, 0), first);
	assert_ptr_not_equal(module_table_file(table, &elsewhere, "/x"), first);
	assert_int_equal(module_table_count(table), 3);
	assert_null(module_table_get(table, 0));
	assert_null(module_table_get(table, 4));
}

/* The kernel gives a freed inode number to the next file: the generation tells them apart. */
static void a_reused_inode_is_another_file(void **state)
{
	cleanup(module_table) struct module_table *table = module_table_create();
	struct module *first = file(table, 7, 0);
	struct module *second;

	assert_ptr_equal(file(table, 7, 100), first);
	second = file(table, 7, 200);
	assert_ptr_not_equal(second, first);
	/* Readings of /proc, which knows no generation, mean the newest. */
	assert_ptr_equal(file(table, 7, 0), second);
	module_table_forget_file(table, second);
	assert_ptr_not_equal(file(table, 7, 0), second);
}

static void equal_content_shares_one_module(void **state)
{
	cleanup(module_table) struct module_table *table = module_table_create();
	struct module *a = file(table, 7, 0), *b = file(table, 8, 0), *c = file(table, 9, 0);

	module_table_set_key(table, b, 0xabc);
	module_table_set_key(table, a, 0xabc);
	module_table_set_key(table, c, 0xdef);
	assert_ptr_equal(module_table_canonical(table, a->id), b);
	assert_ptr_equal(module_table_canonical(table, b->id), b);
	assert_ptr_equal(module_table_canonical(table, c->id), c);
	assert_true(a->changed);
	assert_false(b->changed);
	/* Being told again changes nothing. */
	a->changed = false;
	module_table_set_key(table, a, 0xabc);
	assert_false(a->changed);
}

static void the_table_unused_for_longest_goes_first(void **state)
{
	cleanup(module_table) struct module_table *table = module_table_create();
	struct module *a = file(table, 7, 0), *b = file(table, 8, 0), *c = file(table, 9, 0);

	assert_null(module_table_least_used(table));
	module_table_charge(table, a, 1000);
	module_table_charge(table, b, 2000);
	a->used_ns = 50;
	b->used_ns = 40;
	c->used_ns = 1; /* has no table */
	assert_true(module_table_bytes(table) == 3000);
	assert_ptr_equal(module_table_least_used(table), b);
	module_table_charge(table, b, 0);
	assert_true(module_table_bytes(table) == 1000);
	assert_ptr_equal(module_table_least_used(table), a);
	module_table_charge(table, a, 1500);
	assert_true(module_table_bytes(table) == 1500);
}

static void ids_run_out_gracefully(void **state)
{
	cleanup(module_table) struct module_table *table = module_table_create();
	struct module *module = NULL, *beyond;

	for (uint64_t i = 1; i <= PROF_MODULES_MAX; i++)
		module = file(table, i, 0);
	beyond = file(table, PROF_MODULES_MAX + 5, 0);
	assert_non_null(module);
	assert_ptr_equal(module, beyond);
	assert_int_equal(beyond->state, MODULE_FAILED);
	assert_true(beyond->id < PROF_MODULES_MAX);
	assert_null(module_table_add(table, FEED_MODULE_JIT, "[jit]"));
	assert_ptr_not_equal(file(table, 3, 0), beyond);
}

static void build_id_notes(void **state)
{
	static const uint8_t good[] = { 4, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 'A', 'B', 'C', 0,
					1, 2, 3, 4, 4, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0,
					'G', 'N', 'U', 0, 9, 8, 7, 0 };
	static const uint8_t huge[] = { 4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 'G', 'N', 'U',
					0, 9, 8, 7, 0 };
	uint8_t id[FEED_BUILD_ID_MAX] = { 0 };

	assert_int_equal(module_files_find_build_id(good, sizeof(good), id), 3);
	assert_memory_equal(id, ((uint8_t[]){ 9, 8, 7 }), 3);
	for (size_t len = 0; len < sizeof(good); len++)
		assert_int_equal(module_files_find_build_id(good, len, id), 0);
	assert_int_equal(module_files_find_build_id(huge, sizeof(huge), id), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_known_by_its_identity),
		cmocka_unit_test(a_reused_inode_is_another_file),
		cmocka_unit_test(equal_content_shares_one_module),
		cmocka_unit_test(the_table_unused_for_longest_goes_first),
		cmocka_unit_test(ids_run_out_gracefully),
		cmocka_unit_test(build_id_notes),
	};

	return cmocka_run_group_tests_name("module_table", tests, NULL, NULL);
}
