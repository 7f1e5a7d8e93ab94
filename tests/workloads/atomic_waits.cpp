// SPDX-License-Identifier: Apache-2.0
// Like rust_waits.rs: threads that wait for a std::mutex and time that, also while they do, beside others that wait for atomics which hold the
// value of a locked mutex.
#include <atomic>
#include <chrono>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>

// Sum of all waits in ns, times 16; the low 4 bits count the waits under way. A wait subtracts its
// start and adds its end, so a reader adds the present time once for each wait under way.
static std::atomic<long> waited;
static std::atomic<int> word{ 2 };
static std::mutex lock;

static void rest()
{
	std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

static long now_ns()
{
	return std::chrono::steady_clock::now().time_since_epoch().count();
}

static long waited_ns()
{
	long sum = waited;

	return (sum >> 4) + (sum & 15) * now_ns();
}

__attribute__((noinline)) static void wait_lock()
{
	for (;;) {
		waited -= (now_ns() << 4) - 1;
		lock.lock();
		waited += (now_ns() << 4) - 1;
		rest();
		lock.unlock();
		rest();
	}
}

__attribute__((noinline)) static void wait_atomic()
{
	for (;;) {
		word.wait(2);
		word = 2;
	}
}

int main()
{
	std::string line;

	for (int i = 0; i < 3; i++)
		std::thread(wait_lock).detach();
	std::thread(wait_atomic).detach();
	std::thread([] {
		for (;;) {
			rest();
			word = 1;
			word.notify_one();
		}
	}).detach();
	std::cout << "ready" << std::endl;
	while (std::getline(std::cin, line))
		std::cout << waited_ns() << std::endl;
	_exit(0);
}
