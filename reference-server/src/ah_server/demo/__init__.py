"""`ah-server demo`: the main job on real input, with a failure in the middle when it is checked."""

from ah_server.demo.agent_process import AgentFiles
from ah_server.demo.check import check
from ah_server.demo.plan import DemoFolders, default_folder
from ah_server.demo.show import show
from ah_server.demo.voice import Voice

__all__ = ["AgentFiles", "DemoFolders", "Voice", "check", "default_folder", "show"]
