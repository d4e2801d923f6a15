"""The death of a process, or the failure of a call, at any step between two of its parts."""

import anyio.lowlevel


class Crash(BaseException):
    """The process dies here."""


class InjectedError(Exception):
    """One call fails, before or after it was carried out; the process lives."""


class Fuse:
    """Burns down with each step; at its end something happens."""

    def __init__(self):
        self.left = None
        self.what = None
        self.steps = 0

    def light(self, left, what):
        """Do `what` after so many steps more; it may be a coroutine function where calls burn."""
        self.left, self.what = left, what

    def burn(self):
        self.steps += 1
        if self.left is None:
            return None
        self.left -= 1
        if self.left >= 0:
            return None
        self.left = None
        return self.what()


class Wired:
    """Passes calls on, and burns the fuse before and after each."""

    def __init__(self, target, fuse, failure):
        self._target, self._fuse, self._failure = target, fuse, failure

    def __getattr__(self, name):
        method = getattr(self._target, name)

        async def call(*args, **kwargs):
            try:
                await self._step()
                result = await method(*args, **kwargs)
                await self._step()
            except InjectedError as fault:
                raise self._failure from fault
            return result

        return call

    async def _step(self):
        happening = self._fuse.burn()
        if happening is not None:
            await happening
        await anyio.lowlevel.checkpoint()


def raiser(error):
    """What a fuse does that ends in an error."""

    def what():
        raise error

    return what
