# SPDX-License-Identifier: Apache-2.0
"""asyncio tasks that stay as they are. tasks.py WAY: prints "ready"; a line on standard input makes it print every task that
asyncio.all_tasks() lists as JSON: {name: {"state": ..., "chain": [[function, file, line]], "awaitedBy": [name]}}, innermost
coroutine first. WAY is "parked": all tasks wait; "running": one task sleeps in a system call, so that no other can run;
"busy": tasks run all the time and have nothing to say; "foreign": parked, with tasks of a class that is written in Python."""
import asyncio
import json
import sys
import threading
import time
import types

WORKERS = 40
FINISHED = 5
SPINNERS = 300
loop = None
kept = []  # tasks: asyncio itself refers to them weakly
awaited_by = {}  # what the program itself has arranged: {name: [names]}


async def get(queue):
    return await queue.get()


async def worker(queue):
    while True:
        await get(queue)


async def finished():
    await asyncio.sleep(0)


async def leaf():
    await asyncio.sleep(100000)


async def waits_for_task(other):
    await other


@types.coroutine
def by_generator(future):
    return (yield from future)


async def generated(future):
    # Below the value that this coroutine yields lies a generator, which it does not wait for.
    for _ in (number for number in range(3)):
        await by_generator(future)


async def numbers(event):
    for number in (n for n in range(3)):
        await event.wait()
        yield number


async def iterates(event):
    async for _ in numbers(event):
        pass


async def locks(lock):
    async with lock:
        pass


async def reads(reader):
    await reader.readline()


class Deep:
    def __await__(self):
        return self.inner().__await__()

    async def inner(self):
        await asyncio.sleep(100000)


async def deep(depth):
    if depth:
        await deep(depth - 1)
    else:
        await Deep()


async def grouped():
    async with asyncio.TaskGroup() as group:
        for i in range(3):
            kept.append(group.create_task(leaf(), name=f"in group {i}"))
            awaited_by[f"in group {i}"] = ["group"]


async def unstarted():
    await asyncio.sleep(0)


class NamedTask(asyncio.Task):
    pass


def blocks():
    time.sleep(100000)


async def runs_inner():
    blocks()


async def runs():
    await runs_inner()


def place(frame):
    code = frame.f_code
    return [getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno]


def running():
    """The frames of the task that runs, from the innermost outwards to the outermost coroutine; empty if none does."""
    frame, frames = sys._current_frames()[threading.main_thread().ident], []
    while frame:
        frames.append(place(frame))
        if frame.f_code is runs.__code__:
            return frames
        frame = frame.f_back
    return []


def chain_of(coroutine):
    chain = []
    while coroutine is not None:
        if hasattr(coroutine, "cr_frame"):
            frame, after = coroutine.cr_frame, coroutine.cr_await
        elif hasattr(coroutine, "gi_frame"):
            frame, after = coroutine.gi_frame, coroutine.gi_yieldfrom
        elif hasattr(coroutine, "ag_frame"):
            frame, after = coroutine.ag_frame, coroutine.ag_await
        else:
            # a coroutine_wrapper or an asend object names what it is for to the garbage collector alone
            import gc
            inner = [o for o in gc.get_referents(coroutine)
                     if isinstance(o, (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType))]
            coroutine = inner[0] if inner else None
            continue
        if frame is not None:
            chain.append(place(frame))
        coroutine = after
    return chain[::-1]


def account():
    found = {}
    for task in asyncio.all_tasks(loop):
        name, waits = task.get_name(), getattr(task, "_fut_waiter")
        is_running = name == "runs" and running()
        found[name] = {
            "state": "running" if is_running else "waiting" if waits is not None else "runnable",
            "chain": is_running or chain_of(task.get_coro()),
            "awaitedBy": sorted(awaited_by.get(name, [])),
        }
    return found


def start(coroutine, name, *awaiters):
    kept.append(loop.create_task(coroutine, name=name))
    awaited_by[name] = list(awaiters)
    return kept[-1]


def start_running():
    start(runs(), "runs")
    start(unstarted(), "unstarted")


def answers(way):
    while way == "running" and not running():
        time.sleep(0.01)
    if way == "running":
        print("ready", flush=True)
    for _ in sys.stdin:
        # Threads other than the loop's see the tasks as they are: none of them runs meanwhile.
        print(json.dumps(account()), flush=True)


async def even():
    await asyncio.sleep(0)


async def odd():
    await asyncio.sleep(0)


async def brief():
    await even()


async def spins():
    while True:
        await even()
        await odd()
        await loop.create_task(brief(), name="brief")


async def busy():
    for i in range(SPINNERS):
        start(spins(), f"spinner {i}")
    await asyncio.sleep(0.5)
    print("ready", flush=True)
    await asyncio.sleep(100000)


async def main(way):
    global loop
    loop = asyncio.get_running_loop()
    if way == "busy":
        await busy()
    asyncio.current_task().set_name("main")
    queue, lock, event, future = asyncio.Queue(), asyncio.Lock(), asyncio.Event(), loop.create_future()
    await lock.acquire()
    await asyncio.gather(*(start(finished(), f"finished {i}") for i in range(FINISHED)))
    twice = start(leaf(), "leaf", "first", "second")
    start(waits_for_task(twice), "first")
    start(waits_for_task(twice), "second")
    chained = start(leaf(), "end of a chain", "middle")
    middle = start(waits_for_task(chained), "middle", "begin")
    start(waits_for_task(middle), "begin")
    start(generated(future), "by generator")
    start(iterates(event), "async for")
    start(locks(lock), "lock")
    start(reads(asyncio.StreamReader()), "stream")
    start(deep(30), "deep")
    start(leaf(), "n\u00e4me \u2713 " + "x" * 60)
    kept.append(NamedTask(leaf(), loop=loop, name="of a derived class"))
    awaited_by["of a derived class"] = []
    if hasattr(asyncio, "TaskGroup"):
        start(grouped(), "group")
    workers = [start(worker(queue), f"worker {i}", "main") for i in range(WORKERS)]
    threading.Thread(target=answers, args=[way], daemon=True).start()
    if way == "foreign":
        kept.extend(asyncio.tasks._PyTask(leaf(), loop=loop, name=f"foreign {i}") for i in range(3))
    if way == "running":
        loop.call_later(0.1, start_running)
    else:
        loop.call_later(0.1, lambda: print("ready", flush=True))
    await asyncio.gather(*workers)


asyncio.run(main(sys.argv[1]))
