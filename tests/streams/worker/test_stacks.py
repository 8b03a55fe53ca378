import asyncio
import threading

from flyball_streams.worker.stacks import stacks


async def outer(begun: asyncio.Event, release: asyncio.Event) -> None:
    await inner(begun, release)


async def inner(begun: asyncio.Event, release: asyncio.Event) -> None:
    begun.set()
    await release.wait()


def blocks(release: threading.Event) -> None:
    release.wait(10.0)


def test_the_stacks_show_what_each_task_awaits_and_where_each_thread_is() -> None:
    async def seen() -> str:
        begun, release, blocked = asyncio.Event(), asyncio.Event(), threading.Event()
        task = asyncio.create_task(outer(begun, release), name="waiter")
        thread = threading.Thread(target=blocks, args=(blocked,), name="blocked")
        thread.start()
        await begun.wait()
        found = stacks(asyncio.get_running_loop())
        release.set()
        blocked.set()
        await task
        thread.join()
        return found

    text = asyncio.run(seen())
    _, task = text.split("Task waiter:\n")
    assert task.index("in outer") < task.index("in inner") < task.index("in Event.wait")
    _, thread = text.split("Thread blocked (most recent call first):\n")
    assert "in blocks" in thread


def test_without_tasks_there_are_threads() -> None:
    loop = asyncio.new_event_loop()
    text = stacks(loop)
    loop.close()
    assert "thread MainThread (most recent call first):\n" in text
    assert "test_without_tasks_there_are_threads" in text
    assert "Task " not in text
