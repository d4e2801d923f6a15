"""Messages to people."""

from ahnotify.sending._recorder import DeadLetterRecorder
from ahnotify.sending._retry import RetrySchedule
from ahnotify.sending._sending import Sending

__all__ = ["DeadLetterRecorder", "RetrySchedule", "Sending"]
