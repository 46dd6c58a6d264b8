"""asyncio: what is written for the stdlib's pool works unchanged."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest
from helpers import eventually, occupied

from affinitypool import ThreadPoolExecutor

pytestmark = pytest.mark.timeout(30)

variable = contextvars.ContextVar("variable", default="unset")


def fail(error):
    raise error


def test_run_in_executor(pool):
    async def main():
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(pool, abs, -1) == 1
        return await asyncio.gather(*(loop.run_in_executor(pool, abs, -n) for n in range(500)))

    assert asyncio.run(main()) == list(range(500))


def test_set_default_executor():
    async def main():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(2, "mine"))
        name = await loop.run_in_executor(None, lambda: threading.current_thread().name)
        variable.set("here")
        assert await asyncio.to_thread(variable.get) == "here"
        return name

    assert asyncio.run(main()).startswith("mine_")  # asyncio.run shuts the executor down


def test_a_default_executor_that_was_shut_down_with_the_loop():
    pool = ThreadPoolExecutor(2)

    async def main():
        asyncio.get_running_loop().set_default_executor(pool)
        await asyncio.to_thread(abs, -1)

    asyncio.run(main())
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)


def test_wrap_future(pool):
    async def main():
        task = pool.submit(abs, -2)
        assert await asyncio.wrap_future(task) == 2
        assert await asyncio.wrap_future(task) == 2  # done already
        return task

    assert asyncio.run(main()).result(0) == 2


@pytest.mark.parametrize("error", [KeyError("k"), ValueError()])
def test_errors_arrive(pool, error):
    async def main():
        with pytest.raises(type(error)) as caught:
            await asyncio.get_running_loop().run_in_executor(pool, fail, error)
        return caught.value

    assert type(asyncio.run(main())) is type(error)


def test_cancelling_the_awaiting_side_cancels_a_pending_task(one):
    ran = []

    async def main():
        task = one.submit(ran.append, 1)
        future = asyncio.wrap_future(task)
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert await asyncio.to_thread(eventually, task.cancelled)

    with occupied(one):
        asyncio.run(main())
    one.submit(int).result(10)
    assert ran == []


def test_cancelling_the_task_cancels_the_awaiting_side(one):
    async def main():
        task = one.submit(int)
        future = asyncio.wrap_future(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future

    with occupied(one):
        asyncio.run(main())


def test_a_timeout_of_asyncio(one):
    async def main():
        task = one.submit(int)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await asyncio.wrap_future(task)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(one.submit(int)), 0.02)
        return task

    with occupied(one):
        task = asyncio.run(main())
        assert task.cancelled()


def test_a_task_group(pool):
    async def main():
        loop = asyncio.get_running_loop()

        async def call(n):
            return await loop.run_in_executor(pool, abs, -n)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call(n)) for n in range(50)]
        return [task.result() for task in tasks]

    assert asyncio.run(main()) == list(range(50))


def test_a_coroutine_from_a_worker(two):
    async def main():
        loop = asyncio.get_running_loop()

        async def double(n):
            return 2 * n

        def work(n):
            return asyncio.run_coroutine_threadsafe(double(n), loop).result(10)

        calls = (loop.run_in_executor(two, work, n) for n in range(20))
        return await asyncio.gather(*calls)

    assert asyncio.run(main()) == list(range(0, 40, 2))


def test_as_completed_of_asyncio(pool):
    async def main():
        futures = [asyncio.wrap_future(pool.submit(abs, -n)) for n in range(20)]
        return sorted([await future for future in asyncio.as_completed(futures)])

    assert asyncio.run(main()) == list(range(20))


def test_a_loop_inside_a_task(pool):
    async def main(n):
        await asyncio.sleep(0)
        return n

    tasks = [pool.submit(asyncio.run, main(n)) for n in range(6)]
    assert [task.result(10) for task in tasks] == list(range(6))


def test_contexts_reach_the_worker(pool):
    async def main():
        variable.set("coroutine")
        return await asyncio.get_running_loop().run_in_executor(pool, variable.get)

    assert asyncio.run(main()) == "coroutine"
