"""The agent: configuration, identity, and the loop that collects and sends."""

from ahwal.agent._agent import Agent
from ahwal.agent._collect import Collect, Collector
from ahwal.agent._config import AgentConfig, default_state_dir
from ahwal.agent._credentials import Credentials, CredentialStore
from ahwal.agent._enrol import enroll
from ahwal.agent._load import load_config
from ahwal.agent._status import AgentState, AgentStatus

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentState",
    "AgentStatus",
    "Collect",
    "Collector",
    "CredentialStore",
    "Credentials",
    "default_state_dir",
    "enroll",
    "load_config",
]
