"""A metrics page, read as a scraper reads it."""

from __future__ import annotations

from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families
from stamped_client import ask


class Page:
    """The samples of one scrape."""

    def __init__(self, text):
        self.text = text
        self.families = {f.name: f for f in text_string_to_metric_families(text)}
        self._samples = defaultdict(list)
        for family in self.families.values():
            for sample in family.samples:
                self._samples[sample.name].append(sample)

    def samples(self, name, **labels):
        """The samples of a series whose labels include `labels`."""
        every = self._samples[name]
        return [x for x in every if all(x.labels.get(k) == v for k, v in labels.items())]

    def total(self, name, **labels):
        """Their sum."""
        return sum(sample.value for sample in self.samples(name, **labels))

    def by(self, label, name, **labels):
        """Their sums by one more label, zeros left out."""
        sums = defaultdict(float)
        for sample in self.samples(name, **labels):
            sums[sample.labels[label]] += sample.value
        return {key: value for key, value in sums.items() if value}


def scrape(port, path="/metrics"):
    """The classic text of a server's metrics."""
    answer = ask(port, path, headers={"accept": "text/plain"})
    assert answer.status == 200
    return Page(answer.body.decode())
