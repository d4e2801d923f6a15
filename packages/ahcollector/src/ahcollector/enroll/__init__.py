"""Tokens that come from the hub: enrolment and renewal."""

from ahcollector.enroll.proxy import EnrollProxy, enroll_refusal
from ahcollector.enroll.renewal import Renewal

__all__ = ["EnrollProxy", "Renewal", "enroll_refusal"]
