// SPDX-License-Identifier: Apache-2.0
/* Families: processes that are followed with all their descendants. A family is a bit of struct
 * proc, which a child inherits at the fork. So the family of every process whose fork was seen is
 * known, even if the parent was never announced. The server is told the names of families, not
 * their bits. */
#include "agent/collect/family.h"

#include "agent/collect/announce.h"
#include "agent/collect/proc/proc_facts.h"

static uint64_t bit_of(const struct collector *c, uint64_t family)
{
	for (unsigned i = 0; i < FEED_FAMILIES_MAX; i++)
		if (c->families[i] == family)
			return 1ull << i;
	return 0;
}

static bool is_among(const struct control_families *families, uint64_t family)
{
	for (uint32_t i = 0; i < families->count; i++)
		if (families->items[i].family == family)
			return true;
	return false;
}

/* Those that nobody follows any more; their bits are free for others. */
static void forget(struct collector *c, const struct control_families *families)
{
	uint64_t gone = 0;
	struct proc *proc;
	size_t at = 0;

	for (unsigned i = 0; i < FEED_FAMILIES_MAX; i++) {
		if (!c->families[i] || is_among(families, c->families[i]))
			continue;
		c->families[i] = 0;
		gone |= 1ull << i;
	}
	while (gone && (proc = proc_table_next_kept(c->procs, &at)))
		proc->families &= ~gone;
}

static bool add(struct collector *c, struct proc *proc, uint64_t bits)
{
	if (!(bits & ~proc->families))
		return false;
	proc->families |= bits;
	proc->fed = false;
	c->names_due = true;
	return true;
}

bool family_join(struct collector *c, struct proc *proc, const struct proc *parent)
{
	/* A pid may be another's by now, who began later. */
	if (!parent || (parent->start_boottime_ns > proc->start_boottime_ns &&
			!proc_facts_same_start(parent->start_boottime_ns, proc->start_boottime_ns)))
		return false;
	return add(c, proc, parent->families);
}

static void join_all(struct collector *c)
{
	bool more = true;

	while (more) {
		struct proc *proc;
		size_t at = 0;

		more = false;
		while ((proc = proc_table_next(c->procs, &at)))
			more |= family_join(c, proc, proc_table_find(c->procs, proc->parent_tgid));
	}
}

void family_follow(struct collector *c, const struct control_families *families)
{
	bool any = false;

	forget(c, families);
	for (uint32_t i = 0; i < families->count; i++) {
		const struct control_family *family = &families->items[i];
		struct proc *proc = proc_table_find(c->procs, family->tgid);
		uint64_t bit = bit_of(c, family->family);

		if (!family->family || !proc ||
		    !proc_facts_same_start(proc->start_boottime_ns, family->start_boottime_ns))
			continue;
		if (!bit) {
			bit = bit_of(c, 0); /* there is one: no more are followed than there are bits */
			c->families[__builtin_ctzll(bit)] = family->family;
		}
		any |= add(c, proc, bit);
		/* A session that waits for this begins when it is announced. */
		(void)!announce_proc(c, proc);
	}
	if (any)
		join_all(c);
}
