"""The console: a web page that shows the fleet, and charts of each server."""

from ah_server.console.app import console_app
from ah_server.console.charts import CHARTS, ChartSpec, chart_of, draw
from ah_server.console.fleet import Fleet, FleetView, ServerLine, ServerState

__all__ = [
    "CHARTS",
    "ChartSpec",
    "Fleet",
    "FleetView",
    "ServerLine",
    "ServerState",
    "chart_of",
    "console_app",
    "draw",
]
