# SPDX-License-Identifier: Apache-2.0
"""asyncio tasks whose objects lie. tasks_lie.py WAY writes into its own memory, prints "ready", and sleeps where nothing of
that is used. CPython 3.11; ways: see LIES."""
import asyncio
import ctypes
import sys
import time

tasks = []


async def leaf(future):
    await future


async def waits(future):
    await leaf(future)


def words(address, count):
    return (ctypes.c_uint64 * count).from_address(address)


def replace(holder, count, before, after):
    """Each word at @holder that is the address @before becomes @after."""
    memory = words(holder, count)
    found = [i for i, word in enumerate(memory) if word == before]
    assert found, "no such pointer"
    for i in found:
        memory[i] = after


def chain_without_end(all_tasks):
    coroutine = tasks[0].get_coro()
    replace(id(coroutine), 32, id(coroutine.cr_await), id(coroutine))


def awaits_of_each_other(all_tasks):
    for task, other in zip(tasks, [*tasks[1:], tasks[0]]):
        replace(id(task), 22, id(task._fut_waiter), id(other))


def set_without_end(all_tasks):
    words(id(all_tasks.data), 6)[4] = (1 << 48) - 1


def set_of_everything(all_tasks):
    # a table of a million slots, most of them behind the end of its memory
    words(id(all_tasks.data), 6)[4] = (1 << 20) - 1


def dict_without_end(all_tasks):
    words(words(id(sys.modules), 5)[4], 4)[3] = 1 << 40


def index_without_end(all_tasks):
    (ctypes.c_uint8 * 16).from_address(words(id(sys.modules), 5)[4])[9] = 255


def name_without_end(all_tasks):
    words(id(tasks[0].get_name()), 3)[2] = 1 << 39


def kernel_pointers(all_tasks):
    for task in tasks:
        replace(id(task), 22, id(task._fut_waiter), 0xffff888000000000)
        replace(id(task), 22, id(task.get_coro()), 0xffff888000000000)


def children_without_end(all_tasks):
    gathering = [task for task in asyncio.all_tasks(loop) if type(task._fut_waiter).__name__ == "_GatheringFuture"]
    words(id(gathering[0]._fut_waiter._children), 3)[2] = (1 << 31) - 1


LIES = {lie.__name__: lie for lie in (
    chain_without_end, awaits_of_each_other, set_without_end, set_of_everything, dict_without_end, index_without_end,
    name_without_end, kernel_pointers, children_without_end)}
loop = None


def lie(way):
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sleep = time.sleep
    LIES[way](asyncio.tasks._all_tasks)
    sleep(100000)


async def main(way):
    global loop
    loop = asyncio.get_running_loop()
    tasks.extend(asyncio.create_task(waits(loop.create_future()), name=f"task {i} of the liar") for i in range(100))
    loop.call_later(0.1, lie, way)
    await asyncio.gather(*tasks)


asyncio.run(main(sys.argv[1]))
