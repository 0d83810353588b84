"""One page about models: how big, how accurate, how sure; needs nothing but itself."""

from pocketbayes.report.findings import Findings, answers_of
from pocketbayes.report.page import report_page

__all__ = ["Findings", "answers_of", "report_page"]
