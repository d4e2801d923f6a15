"""How many new series an agent may begin, and where those that it has are kept."""

from ahcollector.budget.base import AgentSeries, BudgetStore, SeriesChange, Window
from ahcollector.budget.file import FileBudgetStore
from ahcollector.budget.keeper import BudgetKeeper
from ahcollector.budget.memory import MemoryBudgetStore
from ahcollector.budget.series_budget import SeriesBudget

__all__ = [
    "AgentSeries",
    "BudgetKeeper",
    "BudgetStore",
    "FileBudgetStore",
    "MemoryBudgetStore",
    "SeriesBudget",
    "SeriesChange",
    "Window",
]
