"""The public names, as a list: changing them is a decision."""

from __future__ import annotations

import importlib

import pytest

EXPORTS = {
    "ahnotify": [
        "ApiKeys",
        "Broker",
        "Channel",
        "Database",
        "DeadLetterRecorder",
        "Directory",
        "History",
        "IncidentRecorder",
        "Matching",
        "Provider",
        "RetrySchedule",
        "RuleCache",
        "RuleStore",
        "Scheduling",
        "Sending",
        "SqlBroker",
        "SqlIncidentStore",
        "downgrade",
        "migrate",
        "publish_incidents",
        "rules_app",
    ],
    "ahnotify.api": ["rules_app"],
    "ahnotify.broker.base": [
        "DEAD_LETTERS",
        "DELIVERY_DIGEST",
        "DELIVERY_INSTANT",
        "INCIDENTS",
        "INCIDENTS_TO_STORE",
        "INCIDENT_EVENTS",
        "RULE_EVENTS",
        "TOPOLOGY",
        "Broker",
        "Consumer",
        "Delivery",
        "Depth",
        "Message",
        "Topology",
    ],
    "ahnotify.broker.sql": ["SqlBroker"],
    "ahnotify.clock": ["AsyncClock", "SystemClock", "utc_now"],
    "ahnotify.database": ["Database", "UtcDateTime", "downgrade", "metadata", "migrate"],
    "ahnotify.directory": [
        "ApiKey",
        "ApiKeys",
        "Contact",
        "Directory",
        "DirectorySnapshot",
        "Principal",
        "RecipientKey",
        "Role",
    ],
    "ahnotify.errors": [
        "BrokerError",
        "BrokerUnavailableError",
        "ConfigurationError",
        "ConflictError",
        "DatabaseUnavailableError",
        "ExistsError",
        "InvalidError",
        "LeaseLostError",
        "NotFoundError",
        "NotifyError",
        "PermanentProviderError",
        "ProviderError",
        "RenderError",
        "TemporaryProviderError",
        "UnknownOutcomeError",
        "UnroutableError",
    ],
    "ahnotify.history": ["DeadLetter", "History", "Notification", "Story"],
    "ahnotify.incidents.base": ["IncidentStore"],
    "ahnotify.incidents.sql": ["IncidentRecorder", "SqlIncidentStore"],
    "ahnotify.matching": ["Matching", "publish_incidents"],
    "ahnotify.providers.base": [
        "CHANNELS",
        "Channel",
        "Content",
        "OutgoingMessage",
        "Provider",
        "ProviderResult",
        "TargetContact",
        "UnknownPolicy",
    ],
    "ahnotify.providers.email": ["EmailProvider", "EmailSettings"],
    "ahnotify.rules": ["RuleCache", "RuleCatalog", "RuleStore", "StoredRule"],
    "ahnotify.scheduling": ["Scheduling"],
    "ahnotify.sending": ["DeadLetterRecorder", "RetrySchedule", "Sending"],
    "ahnotify.testing": ["DIGEST_RULE", "INSTANT_RULE", "NOW", "FakeClock", "incident", "seed"],
    "ahnotify.testing.broker_contract": [
        "CONTRACT_TOPOLOGY",
        "DELIVERIES_MAX",
        "BrokerContract",
        "receive_within",
    ],
}


@pytest.mark.parametrize("name", EXPORTS)
def test_exports_are_as_listed_and_there(name):
    module = importlib.import_module(name)
    assert module.__all__ == EXPORTS[name]
    assert all(hasattr(module, each) for each in module.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    import ahnotify

    with pytest.raises(AttributeError):
        ahnotify.nothing  # noqa: B018
