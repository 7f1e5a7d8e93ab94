// SPDX-License-Identifier: Apache-2.0
/* C++: leak() loses about 1 MB a second in objects of 200 bytes, cache() keeps a bounded number, and 20,000
 * objects a second are deleted at once. */
#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <thread>

#define SITE __attribute__((noinline, noipa))

struct record {
	char bytes[200];
};

static record *volatile sink;
static std::deque<std::unique_ptr<record>> kept;

SITE void leak()
{
	sink = new record();
}

SITE void cache()
{
	kept.push_back(std::make_unique<record>());
	if (kept.size() > 2000)
		kept.pop_front();
}

SITE void pass()
{
	record *r = new record();

	sink = r;
	delete r;
}

int main()
{
	std::puts("ready");
	std::fflush(stdout);
	for (auto next = std::chrono::steady_clock::now();;) {
		next += std::chrono::milliseconds(1);
		for (int i = 0; i < 5; i++)
			leak(), cache();
		for (int i = 0; i < 20; i++)
			pass();
		std::this_thread::sleep_until(next);
	}
}
